// placement.hpp: which cores each rank of a host gets. Pure arithmetic on a list of cores.
#pragma once

#include <span>
#include <vector>

#include "base/cpu.hpp"
#include "tutti/status.hpp"

namespace tutti::cli::launcher {

enum class Binding {
  automatic,  // each rank its equal share of the cores when there are enough, else no binding
  none,
  core,  // each rank exactly one core
};

// The hardware threads of each rank; empty lists where ranks are not bound.
//
// With fewer cores than ranks but enough hardware threads, each rank gets hardware threads of its
// own; ranks next to each other then share a core.
//
// Errors  invalid_argument: Binding::core with more ranks than hardware threads.
Result<std::vector<std::vector<int>>> place(std::span<const base::Core> cores, int ranks,
                                            Binding binding);

}  // namespace tutti::cli::launcher
