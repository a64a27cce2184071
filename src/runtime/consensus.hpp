// consensus.hpp: agreements that say what they are for. Those of a user and those by which ranks
// shrink are one sequence; where one rank's agree() meets another's shrink(), neither can use what
// the other brought, and both are told.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/communicator_state.hpp"

namespace tutti::runtime {

enum class Purpose : char { agree = 'a', shrink = 's' };

// CommunicatorState::agree() among ranks that do it for the same purpose. The agreement is over in
// any case: after a mismatch all ranks may go on with the next one.
// Errors  also mismatch: what the first rank did that called something else.
Result<Decision> agree_to(CommunicatorState& state, Purpose purpose, std::uint64_t flags,
                          const std::string& blob, std::chrono::milliseconds timeout);

}  // namespace tutti::runtime
