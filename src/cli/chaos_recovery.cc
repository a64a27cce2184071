// The survivors of a failure agree on who they are, and go on.
#include <algorithm>

#include "cli/chaos_scene.hpp"
#include "runtime/shrink.hpp"

namespace tutti::cli {
namespace {

using runtime::Decision;
using Outcome = ChaosVerdict::Outcome;

std::size_t at(int value) { return static_cast<std::size_t>(value); }

}  // namespace

// ---- Going on ----

// Those that live agree on who they are and make a call as a smaller communicator; again, when
// somebody dies meanwhile.
void ChaosWorld::recover() {
  recovering_ = true;
  while (fine() && living() > 0) {
    if (!agree()) return;
    failed_ = false;
    run_call(draw_call(dice_, size(), room_));
    if (!failed_) return;
  }
}

// False when there is no going on, which is right only where somebody died silently.
bool ChaosWorld::agree() {
  draw_fault_of_agreement();
  for (Rank r = 0; r < size(); ++r) {
    Participant& p = member(r);
    p.decision.reset();
    if (p.gone) continue;
    p.task = Participant::Task::begin_agreement;
  }
  move_until_done();
  if (!fine() || stuck_) return false;
  // Also of those that came to one and died then.
  const Decision* common = nullptr;
  for (Rank r = 0; r < size(); ++r) {
    const Participant& p = member(r);
    if (!p.decision) continue;
    if (common == nullptr) common = &*p.decision;
    if (*common != *p.decision) trouble(Outcome::wrong, "ranks came to different decisions");
  }
  if (!fine() || common == nullptr) return false;
  judge_contributions(*common);
  go_on(Decision(*common));
  return fine();
}

// Each in its own time; others may be through with it by then.
bool ChaosWorld::begin_agreement(Participant& p) {
  if (world_->random(3) != 0) {
    p.comm->drive();
    return true;
  }
  const Rank r = p.comm->rank();
  static_cast<void>(p.comm->revoke(runtime::revoked_by(r)));
  p.task = Participant::Task::agree;
  const Status begun = p.comm->begin_agreement(~(std::uint64_t{1} << r % 64), blob_of(p.rank));
  if (!begun.ok()) trouble(Outcome::error, begun.to_string());
  return true;
}

// Everybody who lives has a part in it.
void ChaosWorld::judge_contributions(const Decision& decision) {
  for (Rank r = 0; r < size(); ++r) {
    if (member(r).gone || decision.lost[at(r)]) continue;
    if ((decision.flags >> r % 64 & 1) != 0 || decision.blobs[at(r)] != blob_of(members_[at(r)]))
      trouble(Outcome::wrong, fmt::format("the decision lacks what rank {} gave", members_[at(r)]));
  }
}

void ChaosWorld::go_on(const Decision& decision) {
  std::vector<Rank> survivors;
  for (Rank r = 0; r < size(); ++r) {
    if (!decision.lost[at(r)])
      survivors.push_back(members_[at(r)]);
    else if (!member(r).gone)
      trouble(Outcome::wrong, fmt::format("rank {} is held for lost and lives", members_[at(r)]));
  }
  if (!fine()) return;
  ++verdict_.shrinks;
  say(fmt::format("{} of {} ranks go on", survivors.size(), size()));
  const int group = world_->add_group(survivors);
  members_ = survivors;
  for (Rank r = 0; r < size(); ++r) {
    Participant& p = member(r);
    if (p.gone) continue;
    judge_memory(p);
    p.buffers.reset();  // some of it is the transport's
    p.work.reset();
    join(p, group, r);
    if (dice_.one_in(2)) p.former.clear();  // the others see it leave
  }
  waking_.wake_all();
}

// Somebody more, often the one that coordinates, while the others agree: within a few messages.
void ChaosWorld::draw_fault_of_agreement() {
  if (!dice_.one_in(3)) return;
  const int deaths = dice_.between(1, 2);
  Rank next = 0;
  for (int i = 0; i < deaths; ++i) {
    while (next < size() - 1 && member(next).gone) ++next;
    const Rank whom = dice_.one_in(3) ? dice_.between(0, size() - 1) : next++;
    faults_.add({turns_ + dice_.below(at(i + 1) * 60 * participants_.size()),
                 members_[at(std::min(whom, size() - 1))], Fault::Kind::death});
  }
}

}  // namespace tutti::cli
