// process.hpp: what all communicators of a process share: the settings that its environment made,
// the log, and a number that no other process has.
#pragma once

#include <string>

#include "base/log.hpp"
#include "nccl/environment.hpp"

namespace tutti::nccl {

// Read on first use, as NCCL does. Threading: any thread.
const Settings& settings();

base::Log log();

// What people should know of the settings, once in a process: what was ignored, what could not be
// taken; and, by `rank` 0, the version where NCCL_DEBUG asks for it.
void introduce(int rank);

// Equal exactly for ranks of one process; a forked child has its own.
std::string process_identity();

}  // namespace tutti::nccl
