// Messages among a few ranks, while the others do nothing: then news of a failure must find their
// way to those that wait. And what a rank does that has had them.
#include <algorithm>

#include "cli/chaos_scene.hpp"
#include "runtime/shrink.hpp"

namespace tutti::cli {
namespace {

constexpr int kFewRanks = 6;  // take part
constexpr std::size_t kCountMax = 600;
constexpr std::uint64_t kLate = 300;        // turns
constexpr std::uint64_t kDeathWithin = 80;  // turns

std::size_t at(int value) { return static_cast<std::size_t>(value); }

}  // namespace

// ---- Drawing ----

// Some ranks, dead ones among them, and often first: from there a failure has the longest way.
std::vector<Rank> ChaosWorld::draw_few() {
  std::vector<Rank> few;
  std::vector<Rank> gone;
  for (Rank rank = 0; rank < size(); ++rank)
    if (member(rank).gone) gone.push_back(rank);
  if (!gone.empty() && dice_.one_in(2)) few.push_back(gone[dice_.below(gone.size())]);
  const auto wanted = at(dice_.between(2, std::min(size(), kFewRanks)));
  while (few.size() < wanted) {
    const Rank rank = dice_.between(0, size() - 1);
    if (std::find(few.begin(), few.end(), rank) == few.end()) few.push_back(rank);
  }
  return few;
}

// In an order in which all of them can be made. Chains bring a failure from one end to the other;
// of others, some ranks only send.
std::vector<std::pair<Rank, Rank>> ChaosWorld::draw_pattern(const std::vector<Rank>& few) {
  std::vector<std::pair<Rank, Rank>> pattern;
  const int rounds = dice_.between(1, 2);
  for (int round = 0; round < rounds; ++round) {
    const bool chain = dice_.one_in(2);
    for (std::size_t i = 1; i < few.size(); ++i) {
      const std::size_t from = chain ? i - 1 : dice_.below(few.size());
      const std::size_t to = chain ? i : (from + 1 + dice_.below(few.size() - 1)) % few.size();
      pattern.emplace_back(few[from], few[to]);
    }
  }
  return pattern;
}

// Every rank makes those that it takes part in one after the other, unless it knows of a failure
// and does not call any more.
void ChaosWorld::run_messages() {
  const std::vector<Rank> few = draw_few();
  if (!member(few.front()).gone && dice_.one_in(3))
    faults_.add(
        {turns_ + dice_.below(kDeathWithin), members_[at(few.front())], Fault::Kind::death});
  for (const auto& [from, to] : draw_pattern(few)) {
    messages_.push_back(draw_message(dice_, size(), from, to, kCountMax));
    const PlannedCall& message = messages_.back();
    say(describe(message));
    for (const Rank rank : {from, to})
      if (!member(rank).gone && calls(member(rank))) member(rank).script.push_back(&message);
  }
  ++verdict_.calls;
  for (const Rank rank : few) next_message(member(rank));
  move_until_done();
  if (failed_ && fine()) ++verdict_.failed_calls;
}

// Some are late.
void ChaosWorld::next_message(Participant& p) {
  if (p.script.empty() || p.gone) return;
  prepare(p, *p.script.front());
  p.script.pop_front();
  if (!dice_.one_in(4)) return;
  p.paused_until = turns_ + 1 + dice_.below(kLate);
  faults_.add({p.paused_until, p.rank, Fault::Kind::end_of_pause});
}

// ---- Habits ----

// Whether it makes calls: also of one that has failed.
bool ChaosWorld::calls(const Participant& p) const {
  return !knows_of_failure(p) || p.habit == Habit::call;
}

// After a failure, before the survivors agree: whoever heard of it does as it is used to, and the
// others go on.
void ChaosWorld::go_astray() {
  do {
    if (dice_.one_in(3))
      run_call(draw_call(dice_, size(), room_));
    else
      run_messages();
  } while (fine() && !dice_.one_in(3));
}

void ChaosWorld::follow_habit(Participant& p) {
  switch (p.habit) {
    case Habit::wait:
      p.script.clear();
      break;
    case Habit::call:
      break;
    case Habit::leave:
      p.script.clear();
      p.task = Participant::Task::leave;
      break;
    case Habit::revoke:
      p.script.clear();
      p.task = Participant::Task::revoke;
      break;
  }
}

// In its own time, both.
void ChaosWorld::leave_or_revoke(Participant& p) {
  if (world_->random(4) != 0) {
    p.comm->drive();
    return;
  }
  if (p.task == Participant::Task::leave) {
    say(fmt::format("  rank {} leaves at turn {}", p.rank, turns_));
    ++verdict_.leavers;
    leave(p);
    return;
  }
  say(fmt::format("  rank {} revokes at turn {}", p.rank, turns_));
  static_cast<void>(p.comm->revoke(runtime::revoked_by(p.comm->rank())));
  p.task = Participant::Task::none;
  end_task();
}

}  // namespace tutti::cli
