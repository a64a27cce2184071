// Lets chance decide who moves next, and what befalls whom; and notices when nothing moves any
// more.
#include <algorithm>

#include "cli/chaos_scene.hpp"

namespace tutti::cli {
namespace {

using Outcome = ChaosVerdict::Outcome;

constexpr unsigned kMovesPerLookBack = 8;
// Without an end of a call or agreement, for each that may move: a thousand times what any needs.
constexpr std::uint64_t kMovesPerActorMax = 200'000;
constexpr int kPatienceSweeps = 30;  // of all ranks without a move, before the world stands still
constexpr std::uint64_t kPause = 1000;  // turns
// Looks of a rank for which nothing new arrives: enough for it to look after what the transport
// does not tell (CommunicatorParts::Patience). Without effect while it agrees.
constexpr int kLooksInVain = 9;
constexpr int kLooksInVainAgreeing = 2;
constexpr std::uint64_t kWakersOneIn = 16;  // turns, of anybody, asleep or not

std::size_t at(int value) { return static_cast<std::size_t>(value); }

}  // namespace

// ---- Faults ----

int ChaosWorld::living() const {
  return static_cast<int>(std::count_if(participants_.begin(), participants_.end(),
                                        [](const Participant& p) { return !p.gone; }));
}

void ChaosWorld::strike_due() {
  while (const Fault* fault = faults_.next_due(turns_)) {
    Participant& p = participants_[at(fault->rank)];
    if (!p.gone) strike(*fault, p);
  }
  ++turns_;
}

void ChaosWorld::strike(const Fault& fault, Participant& p) {
  switch (fault.kind) {
    case Fault::Kind::pause:
      ++verdict_.pauses;
      p.paused_until = turns_ + kPause;
      faults_.add({p.paused_until, p.rank, Fault::Kind::end_of_pause});
      say(fmt::format("  rank {} pauses at turn {}", p.rank, turns_));
      return;
    case Fault::Kind::end_of_pause:
      waking_.wake(p.rank);
      return;
    case Fault::Kind::abort:
      if (living() <= 1 || p.task == Participant::Task::agree) return;
      ++verdict_.aborts;
      aborted_.push_back(p.rank);
      say(fmt::format("  rank {} aborts at turn {}", p.rank, turns_));
      p.comm->abort();
      waking_.wake(p.rank);
      return;
    default:
      break;
  }
  if (living() <= 1) return;
  const bool silent = fault.kind == Fault::Kind::silent_death;
  ++(silent ? verdict_.silent_kills : verdict_.kills);
  say(fmt::format("  rank {} dies{} at turn {}", p.rank, silent ? " silently" : "", turns_));
  world_->kill(p.rank, silent);
  p.gone = true;
  end_task();
}

// An error is right when something happened that explains it, and it names whom it should.
void ChaosWorld::judge_failure(const Participant& p, const Status& status) {
  const Rank whom = status.culprit() >= 0 && status.culprit() < size()
                        ? members_[at(status.culprit())]
                        : Status::kUnknownRank;
  const bool known = whom != Status::kUnknownRank;
  bool right = false;
  switch (status.code()) {
    case StatusCode::peer_lost:
      right = known && (world_->killed(whom) || participants_[at(whom)].gone);
      break;
    case StatusCode::aborted:
      right = known && std::count(aborted_.begin(), aborted_.end(), whom) > 0;
      break;
    case StatusCode::timeout:
      right = any_silent();
      break;
    case StatusCode::corrupt_data:
      right = world_->damaged_frames() > 0;
      break;
    case StatusCode::mismatch:
      right = verdict_.mismatches > 0;
      break;
    case StatusCode::revoked:
      right = recovering_ || (known && participants_[at(whom)].habit == Habit::revoke);
      break;
    default:
      break;
  }
  if (!right) trouble(Outcome::error, fmt::format("rank {}: {}", p.rank, status.to_string()));
}

// ---- Moving ----

// True when the rank moved.
bool ChaosWorld::move(Participant& p) {
  if (p.gone || p.paused_until > turns_) return false;
  bool moved = true;
  world_->begin_stores(p.rank);
  act(p, moved);
  if (!p.former.empty() && ++p.moves % kMovesPerLookBack == 0)
    for (const auto& old : p.former) moved |= old->drive();
  world_->end_stores(p.rank);
  return moved;
}

void ChaosWorld::act(Participant& p, bool& moved) {
  switch (p.task) {
    case Participant::Task::enter:
      return enter(p);
    case Participant::Task::call:
      moved = p.comm->drive();
      if (p.task == Participant::Task::call) leave_if_done(p);
      return;
    case Participant::Task::leave:
    case Participant::Task::revoke:
      return leave_or_revoke(p);
    case Participant::Task::begin_agreement:
      moved = begin_agreement(p);
      return;
    case Participant::Task::agree:
      if (auto end = p.comm->move_agreement(moved)) {
        moved = true;
        end_task();
        p.task = Participant::Task::none;
        if (!end->ok())
          judge_failure(p, end->status());
        else
          p.decision = **end;
        // One that aborted between two calls finds out only here.
        if (end->status().code() == StatusCode::aborted) leave(p);
      }
      return;
    case Participant::Task::none:
      moved = p.comm->drive();
      return;
  }
}

bool ChaosWorld::all_done() {
  if (!std::exchange(task_ended_, false)) return false;
  const bool done =
      std::all_of(participants_.begin(), participants_.end(),
                  [](const Participant& p) { return p.gone || p.task == Participant::Task::none; });
  task_ended_ = done;
  return done;
}

bool ChaosWorld::all_waiting() const {
  return std::all_of(participants_.begin(), participants_.end(), [](const Participant& p) {
    return p.gone || p.task != Participant::Task::none;
  });
}

void ChaosWorld::move_until_done() {
  std::uint64_t slowest = 1;  // all wait for it, and their turns pass
  for (const Participant& p : participants_) slowest = std::max(slowest, p.slowness);
  const std::uint64_t last_turn =
      turns_ + kMovesPerActorMax * slowest * (participants_.size() + network_share_);
  stuck_in_call_ = false;
  asked_at_ = ~std::uint64_t{0};
  task_ended_ = true;
  waking_.wake_all();
  while (fine() && !stuck_ && !stuck_in_call_ && !all_done()) {
    strike_due();
    wake_reached();
    if (waking_.awake() == 0 && world_->in_flight() == 0) {
      if (!anything_moves()) stand_still();
      waking_.wake_all();
    } else {
      take_turn();
    }
    if (turns_ > last_turn) trouble(Outcome::hang, "moves for ever: " + describe_hang());
  }
}

void ChaosWorld::wake_reached() {
  woken_.clear();
  world_->take_woken(woken_);
  for (const Rank rank : woken_) waking_.wake(rank);
}

// Of somebody, or of the network.
void ChaosWorld::take_turn() {
  const std::uint64_t actor = world_->random((waking_.awake() + network_share_) * kWakersOneIn);
  const std::uint64_t share = actor / kWakersOneIn;
  if (share >= waking_.awake()) {
    world_->step();
    return;
  }
  const bool anybody = actor % kWakersOneIn == 0;
  const Rank whom =
      anybody ? static_cast<Rank>(world_->random(participants_.size())) : waking_.awake(share);
  Participant& p = participants_[at(whom)];
  const bool slow = p.slowness > 1 && p.task == Participant::Task::call;
  if (slow && world_->random(p.slowness) != 0) return;
  const bool agrees = p.task == Participant::Task::agree;
  const bool moved = move(p);
  waking_.looked(whom, moved, agrees ? kLooksInVainAgreeing : kLooksInVain);
}

// Everybody, again and again; true when anything moved.
bool ChaosWorld::anything_moves() {
  for (Participant& p : participants_) p.paused_until = 0;
  for (int i = 0; i < kPatienceSweeps; ++i) {
    bool moved = world_->step();
    for (Participant& p : participants_) moved |= move(p);
    if (moved || !fine()) return true;
  }
  return false;
}

// Nothing is in flight, nobody moves: what is left is what time brings. First those that wait ask
// whom they wait for, again when a call has ended since; then, where somebody is silent, the
// deadline passes.
void ChaosWorld::stand_still() {
  if (std::exchange(asked_at_, ends_) != ends_) {
    if (news_are_missing()) return trouble(Outcome::hang, "news of a failure: " + describe_hang());
    for (Participant& p : participants_)
      if (!p.gone && p.task == Participant::Task::call) p.comm->inquire();
    return;
  }
  if (verdict_.mismatches > 0 && !all_waiting()) {
    stuck_in_call_ = true;  // until those that are through make their next call
    return;
  }
  if (!any_silent()) return trouble(Outcome::hang, describe_hang());
  for (Participant& p : participants_) {
    if (p.gone || p.task == Participant::Task::none) continue;
    if (p.task == Participant::Task::call) {
      p.comm->give_up(*p.work);
      leave_if_done(p);
    } else {
      give_up_agreement(p);
    }
    return;
  }
}

// It must wait for somebody silent, or for the one that does.
void ChaosWorld::give_up_agreement(Participant& p) {
  const Status status = p.comm->give_up_agreement(std::chrono::milliseconds(1));
  const Rank whom = status.culprit();
  if (whom < 0 || !world_->killed_silently(members_[at(whom)]))
    trouble(Outcome::error, fmt::format("rank {}: {}", p.rank, status.to_string()));
  stuck_ = true;
}

std::string ChaosWorld::describe_hang() {
  std::string text = "hang:";
  for (Participant& p : participants_) {
    if (p.gone || p.task == Participant::Task::none) continue;
    text += fmt::format(" rank {} waits: {};", p.rank,
                        p.task == Participant::Task::call
                            ? p.comm->awaited()
                            : p.comm->give_up_agreement(std::chrono::milliseconds(0)).message());
  }
  return text;
}

}  // namespace tutti::cli
