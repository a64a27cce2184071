// shrink.hpp: what remains of a communicator when ranks have died, as a new communicator.
#pragma once

#include <memory>

#include "runtime/communicator_state.hpp"

namespace tutti::runtime {

// The failure of a communicator that `rank` revokes.
Status revoked_by(Rank rank);

// A communicator of the ranks that live. All of those call it; the old one is revoked.
Result<std::shared_ptr<CommunicatorState>> shrink(CommunicatorState& parent);

}  // namespace tutti::runtime
