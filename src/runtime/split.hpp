// split.hpp: a new communicator of some of the ranks of another one, or a new transport of all.
#pragma once

#include <memory>

#include "runtime/communicator_state.hpp"

namespace tutti::runtime {

// A failure whose culprit is told in the parent's ranks, in those of a child that has `ranks` of
// the parent; and the other way round.
Status of_child(const Status& status, const std::vector<Rank>& ranks);
Status of_parent(const Status& status, const std::vector<Rank>& ranks);

// Every rank of `parent` calls it. Ranks of the same color get a communicator together, ordered by
// (key, rank); a negative color takes part and gets null.
// Errors  those of making a communicator, on the ranks of the color that failed.
Result<std::shared_ptr<CommunicatorState>> split(CommunicatorState& parent, int color, int key);

// A second transport between the ranks of `parent`, in their order, for those who move more than
// its calls. Every rank calls it; where one fails, others may have theirs.
Result<std::unique_ptr<Transport>> connect_beside(CommunicatorState& parent);

}  // namespace tutti::runtime
