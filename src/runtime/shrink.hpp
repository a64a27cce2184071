// shrink.hpp: what remains of a communicator when ranks have died, as a new communicator.
#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator_state.hpp"

namespace tutti::runtime {

// The failure of a communicator that `rank` revokes.
Status revoked_by(Rank rank);

// A communicator of the ranks that live and are not among `excluded`. All of those call it, with
// the same list; the old one is revoked. Excluded ranks are held for lost, whatever they do.
Result<std::shared_ptr<CommunicatorState>> shrink(CommunicatorState& parent,
                                                  const std::vector<Rank>& excluded = {});

}  // namespace tutti::runtime
