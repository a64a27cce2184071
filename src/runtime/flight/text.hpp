// text.hpp: flight recorders for people to read: in the log when a communicator fails, and in
// `tutti doctor`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/flight/processes.hpp"

namespace tutti::runtime::flight {

// "3.1 s", "12.5 ms", "4.2 us"
std::string format_seconds(double seconds);

// What a call is without the plan's hash: "all_reduce #7: 1024 x float, sum".
std::string describe_signature(const Signature& signature);

// "all_reduce #7: 1024 x float, sum; for 3.1 s; waits for data from rank 2 for 3.0 s", or what the
// communicator did last.
std::string describe_state(const CommunicatorView& view);

// The latest calls, the last one last; lines that begin with `indent` and end in a newline.
std::string describe_calls(const CommunicatorView& view, std::size_t calls_max,
                           const std::string& indent);

// Why it failed and what it did before. Several lines, without a newline at the end.
std::string describe_failure(const CommunicatorView& view, std::size_t calls_max);

// "running", "stopped", ...
std::string_view describe_process_state(char state);

// One line for each rank of the communicator that was found; each ends in a newline.
std::string describe_ranks(const std::vector<Process>& processes, const CommunicatorView& view,
                           const std::string& indent);

}  // namespace tutti::runtime::flight
