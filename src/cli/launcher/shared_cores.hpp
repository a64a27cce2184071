// shared_cores.hpp: what makes handing over a core from rank to rank cheaper, where several ranks
// share one. Pure arithmetic on an environment.
#pragma once

#include "base/environment.hpp"

namespace tutti::cli::launcher {

// Turns off the C library's restartable sequences in processes that are started with this
// environment: the kernel writes into them whenever a thread gets a core. Only glibc from 2.35 on
// knows the setting (GLIBC_TUNABLES, glibc.pthread.rseq), others pass over it. Programs go without
// them by themselves: sched_getcpu() then asks the kernel.
//
// What is set of it already stays, and so do all other tunables.
void turn_off_restartable_sequences(base::Environment& environment);

}  // namespace tutti::cli::launcher
