// How a call copies where there are two ways of it (pull_choice.hpp): what this rank does in it,
// what it says of the next one where it leads, and what it hears.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/executor.hpp"

namespace tutti::runtime {

// Which program of the plan the call runs. A plan that alternates copies in one way only.
auto Executor::choose_program(const Call& call, const collectives::Plan& plan)
    -> const SharedProgram& {
  pull_choice_.begin(call.signature);
  const SharedProgram& copies = choose_copies(call, plan);
  return plan.odd == nullptr ? copies : turn_of(call, plan);
}

// As all ranks have agreed before it.
// Requires  pull_choice_.begin() of this call.
auto Executor::choose_copies(const Call& call, const collectives::Plan& plan)
    -> const SharedProgram& {
  copies_ = {};
  leads_ = false;
  two_programs_ = plan.pulled != nullptr && peers_read_at_once_ && !call.signature.varied;
  attachable_ = may_attach(call, plan);
  if (!two_programs_ && !attachable_) return plan.program;
  copies_.now = agreed_way();
  const bool has_the_word =
      transport_.rank() == PullChoice::leader(call.signature, transport_.size());
  // Where ranks share a core, how long a call takes says more of their turns.
  leads_ = has_the_word && neighbours_.empty() && !options_.pulls;
  const CopyWay second = leads_ ? second_way(pull_choice_.met_plain()) : CopyWay::stored;
  if (second != CopyWay::stored) copies_.next = pull_choice_.propose(second);
  // As the others hear it, also where there is nothing to choose any more.
  if (has_the_word) pull_choice_.heard(copies_.next);
  return copies_.now != CopyWay::stored && two_programs_ ? plan.pulled : plan.program;
}

// As it was said, or is wished.
CopyWay Executor::agreed_way() const {
  if (!options_.pulls) return pull_choice_.way();
  if (!*options_.pulls) return CopyWay::stored;
  return attachable_ ? CopyWay::attached : CopyWay::pulled;
}

// What may be done instead of storing, where there is plain memory or none.
CopyWay Executor::second_way(bool plain) {
  if (plain && attachable_ && transport_.all_attached()) return CopyWay::attached;
  return two_programs_ ? CopyWay::pulled : CopyWay::stored;
}

// The first call of a kind has proposed what the next one does before its memory was known. Of long
// calls there may be few, so it proposes again, unless a peer has heard it.
// Requires  this rank leads, and its memory is plain.
void Executor::propose_for_plain() {
  if (pull_choice_.met_plain() || second_way(true) != CopyWay::attached ||
      std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.arrival_sent; }))
    return;
  pull_choice_.met(true);
  copies_.next = pull_choice_.propose(CopyWay::attached);
  pull_choice_.heard(copies_.next);
}

// Takes the word of the rank that leads.
bool Executor::agrees_on_copies(std::size_t peer, CopyWays theirs) {
  if (theirs.now != copies_.now) {
    const auto verb = [](CopyWay way) {
      return way == CopyWay::stored ? "stores" : way == CopyWay::pulled ? "loads" : "attaches";
    };
    fail(Status(StatusCode::internal,
                fmt::format("rank {}: {}: it {} copies, and rank {} {} them: the ranks' words on "
                            "this call were lost",
                            transport_.rank(), to_string(call_.signature), verb(copies_.now),
                            rank_of(peer), verb(theirs.now))));
    return false;
  }
  if (rank_of(peer) == leader() && may_choose()) pull_choice_.heard(theirs.next);
  return true;
}

}  // namespace tutti::runtime
