// placement.hpp: which cores each rank of a host gets. Pure arithmetic on a list of cores.
#pragma once

#include <span>
#include <vector>

#include "base/cpu.hpp"
#include "tutti/status.hpp"

namespace tutti::cli::launcher {

enum class Binding {
  automatic,  // each rank its equal share of the cores; of hardware threads that are too few, one
  none,
  core,  // each rank exactly one core
};

// The hardware threads of each rank; empty lists where ranks are not bound.
//
// With fewer cores than ranks but enough hardware threads, each rank gets hardware threads of its
// own; ranks next to each other then share a core. With fewer hardware threads than ranks,
// neighbours share one: ranks that wait give it to those they wait for, which only helps where the
// scheduler cannot leave one rank alone on a core and crowd the others on the next.
//
// Errors  invalid_argument: Binding::core with more ranks than hardware threads.
Result<std::vector<std::vector<int>>> place(std::span<const base::Core> cores, int ranks,
                                            Binding binding);

}  // namespace tutti::cli::launcher
