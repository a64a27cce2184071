// ask_child.hpp: a question about foreign code, put to a child process: what that code starts,
// takes over or breaks when it is opened ends with the child.
#pragma once

#include <chrono>
#include <functional>

#include "tutti/status.hpp"

namespace tutti::cli {

// What `question` returns in a child forked for it, which ends without running destructors.
// Returns   its Status; `internal` with the signal where the child died of one; `timeout` where it
//           said nothing within `patience` (it is killed); system_error where there is no child.
// Requires  a question that needs no other thread of this process: the child has none of them.
Status ask_child(const std::function<Status()>& question, std::chrono::milliseconds patience);

}  // namespace tutti::cli
