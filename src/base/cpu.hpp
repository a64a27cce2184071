// cpu.hpp: which cores this process may use, and how ranks share them out.
//
// Knows sched_getaffinity, control groups and sysfs; knows nothing of NUMA domains or links, which
// are the topology's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/status.hpp"

namespace tutti::base {

// One core: the numbers of its hardware threads that this process may run on, ascending.
using Core = std::vector<int>;

// The cores that this process may run on, ascending by their first hardware thread.
std::vector<Core> allowed_cores();

// How many threads can really run at once: the allowed hardware threads, or fewer where a control
// group grants less time than that. At least 1.
int usable_cpu_count();

// "0-3,8" -> {0, 1, 2, 3, 8}, ascending; text that is no such list gives what was read before it
// went wrong.
std::vector<int> parse_cpu_list(const std::string& text);

// Restricts the calling thread, and what it starts from now on, to these hardware threads.
// Errors  system_error.
Status bind_to(std::span<const int> cpus);

}  // namespace tutti::base
