// subset.hpp: a new communicator of some of the ranks of another one, to which the rest has nothing
// to say: only its members call.
#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator_state.hpp"

namespace tutti::runtime {

// The communicator of `ranks` of `parent`, which are told in its numbers, ascending; their order
// there is that here. Each of them calls it with the same list, and nobody else.
// Requires  parent.rank() is one of them. The parent has not failed, and is good for more calls.
// Errors    those of messages between the members, and of making a communicator.
Result<std::shared_ptr<CommunicatorState>> make_subset(CommunicatorState& parent,
                                                       const std::vector<Rank>& ranks);

}  // namespace tutti::runtime
