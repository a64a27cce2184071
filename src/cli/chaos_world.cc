// Draws a world and its calls from the seed, lets chance decide who moves next, and checks.
#include "cli/chaos_world.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/chaos_call.hpp"
#include "runtime/shrink.hpp"
#include "transport/checked/transport.hpp"
#include "transport/sim/transport.hpp"
#include "transport/sim/world.hpp"

namespace tutti::cli {
namespace {

using runtime::CommunicatorState;
using runtime::Decision;
using Outcome = ChaosVerdict::Outcome;

constexpr int kCallsAfter = 4;  // a mismatch, until all ranks know
constexpr unsigned kMovesPerLookBack = 8;
// Without an end of a call or agreement, for each that may move: a thousand times what any needs.
constexpr std::uint64_t kMovesPerActorMax = 200'000;
constexpr int kPatienceSweeps = 30;  // of all ranks without a move, before the world stands still

std::size_t at(int value) { return static_cast<std::size_t>(value); }

// A rank of the world, and the communicator that it is in at present.
struct Participant {
  Rank rank = 0;  // in the world
  std::shared_ptr<CommunicatorState> comm;
  Transport* transport = nullptr;                          // of `comm`
  std::vector<std::shared_ptr<CommunicatorState>> former;  // kept, as a program may
  std::shared_ptr<const collectives::Plan> plan;           // of the call at hand
  std::shared_ptr<runtime::WorkState> work;
  const PlannedCall* planned = nullptr;  // the call at hand
  bool varied_call = false;              // others make another one
  std::unique_ptr<RankBuffers> buffers;
  bool gone = false;  // dead, or aborted and left
  std::uint64_t paused_until = 0;
  unsigned moves = 0;
  enum class Task { none, enter, call, agree } task = Task::none;
  std::optional<Decision> decision;
};

struct Fault {
  enum class Kind { death, silent_death, pause, abort };
  std::uint64_t turn = 0;
  Rank rank = 0;
  Kind kind = Kind::death;
};

class ChaosWorld {
 public:
  ChaosWorld(std::uint64_t seed, const ChaosLimits& limits, bool tell_events)
      : dice_(seed), limits_(limits) {
    transport::SimOptions options;
    options.seed = seed;
    options.size = dice_.between(limits.ranks_min, limits.ranks_max);
    room_.channels = dice_.between(1, 3);
    options.channel_count = room_.channels + 1;
    // At least an element of every rank's block and a checksum.
    options.frame_bytes_max = std::max(at(dice_.between(4, 32)) * 128, 16 * at(options.size) + 64);
    options.queue_frames_max = dice_.between(2, 6);
    options.ranks_per_host = dice_.between(1, options.size);
    options.meanwhile_per_mille = dice_.between(0, 1) * 100;
    // Slow against the ranks, or as quick as they are.
    network_share_ = 1 + (options.size >= 32 || dice_.one_in(2) ? at(options.size) / 2 : 0);
    checked_ = limits.faults && dice_.one_in(4);
    if (checked_) {
      options.damage_per_mille = static_cast<int>(dice_.below(2) * dice_.below(20));
      options.damage_channels = room_.channels;
    }
    world_ = std::make_unique<transport::SimWorld>(options);
    if (tell_events)
      world_->observe([this](const transport::SimEvent& event) { say("  " + to_string(event)); });
    room_.frame_bytes = options.frame_bytes_max - (checked_ ? transport::kChecksumBytes : 0);
    participants_.resize(at(options.size));
    std::vector<Rank> all;
    for (Rank r = 0; r < options.size; ++r) all.push_back(r);
    for (Rank r = 0; r < options.size; ++r) {
      participants_[at(r)].rank = r;
      join(participants_[at(r)], 0, r);
    }
    members_ = all;
    say(fmt::format(
        "seed {}: {} ranks, {} to a host, {} channels, frames of {} bytes, queues of "
        "at most {}{}",
        seed, options.size, options.ranks_per_host, room_.channels, room_.frame_bytes,
        options.queue_frames_max,
        checked_ ? fmt::format(", checksums, {} of 1000 frames damaged", options.damage_per_mille)
                 : ""));
  }

  ChaosVerdict run() {
    const int calls = dice_.between(1, limits_.calls_max);
    draw_faults();
    if (limits_.mismatches)
      run_mismatch(calls);
    else
      for (int i = 0; i < calls && fine() && !failed_; ++i)
        run_call(draw_call_after(calls_, dice_, size(), room_));
    if (failed_ && fine() && !limits_.mismatches) recover();
    finish();
    return std::move(verdict_);
  }

 private:
  int size() const { return static_cast<int>(members_.size()); }
  bool fine() const { return verdict_.outcome == Outcome::right; }
  Participant& member(Rank r) { return participants_[at(members_[at(r)])]; }

  void say(std::string line) { verdict_.story.push_back(std::move(line)); }

  void trouble(Outcome outcome, std::string text) {
    if (!fine()) return;
    verdict_.outcome = outcome;
    verdict_.trouble = std::move(text);
  }

  // ---- Communicators ----

  void join(Participant& p, int group, Rank rank) {
    runtime::CommunicatorParts parts;
    parts.transport = transport::make_sim_transport(*world_, rank, group);
    if (checked_)
      parts.transport = transport::make_checked_transport(std::move(parts.transport),
                                                          static_cast<std::uint64_t>(group));
    p.transport = parts.transport.get();
    parts.patience = {8, 3};
    parts.config.flight = base::FlightChoice::off;
    parts.config.progress = base::ProgressChoice::off;  // all is one thread, and so repeatable
    parts.config.slow_after = std::chrono::milliseconds(0);
    if (limits_.strict) parts.config.check = base::CheckChoice::strict;
    parts.plan_source = [&p](const collectives::PlanQuery&) { return p.plan; };
    if (p.comm) p.former.push_back(std::move(p.comm));
    p.comm = std::make_shared<CommunicatorState>(std::move(parts));
    if (limits_.strict) use_check_plan(p);
  }

  // ---- Faults ----

  // Nobody, or a few, at any time; but never all of them.
  void draw_faults() {
    if (!limits_.faults || size() == 1) return;
    const std::uint64_t actors = 1 + at(size()) / 16;
    const std::uint64_t horizons[] = {50 * actors, 500 * actors, 5000 * actors};
    const auto when = [&] { return dice_.below(dice_.one_of(horizons)); };
    const int kills = dice_.between(0, std::min(3, size() - 1));
    for (int i = 0; i < kills; ++i)
      faults_.push_back({when(), dice_.between(0, size() - 1),
                         dice_.one_in(6) ? Fault::Kind::silent_death : Fault::Kind::death});
    if (dice_.one_in(4))
      faults_.push_back({when(), dice_.between(0, size() - 1), Fault::Kind::pause});
    if (dice_.one_in(10))
      faults_.push_back({when(), dice_.between(0, size() - 1), Fault::Kind::abort});
  }

  // Somebody more, often the one that coordinates, while the others agree: within a few messages.
  void draw_fault_of_agreement() {
    if (!dice_.one_in(3)) return;
    const int deaths = dice_.between(1, 2);
    Rank next = 0;
    for (int i = 0; i < deaths; ++i) {
      while (next < size() - 1 && member(next).gone) ++next;
      const Rank whom = dice_.one_in(3) ? dice_.between(0, size() - 1) : next++;
      faults_.push_back({turns_ + dice_.below(at(i + 1) * 60 * participants_.size()),
                         members_[at(std::min(whom, size() - 1))], Fault::Kind::death});
    }
  }

  int living() const {
    return static_cast<int>(std::count_if(participants_.begin(), participants_.end(),
                                          [](const Participant& p) { return !p.gone; }));
  }

  void strike_due() {
    for (const Fault& fault : faults_) {
      Participant& p = participants_[at(fault.rank)];
      if (fault.turn != turns_ || p.gone) continue;
      strike(fault, p);
    }
    ++turns_;
  }

  void strike(const Fault& fault, Participant& p) {
    switch (fault.kind) {
      case Fault::Kind::pause:
        ++verdict_.pauses;
        p.paused_until = turns_ + 2000;
        say(fmt::format("  rank {} pauses at turn {}", p.rank, turns_));
        return;
      case Fault::Kind::abort:
        if (living() <= 1 || p.task == Participant::Task::agree) return;
        ++verdict_.aborts;
        aborted_.push_back(p.rank);
        say(fmt::format("  rank {} aborts at turn {}", p.rank, turns_));
        p.comm->abort();
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
  }

  bool any_silent() const { return verdict_.silent_kills > 0; }

  // An error is right when something happened that explains it, and it names whom it should.
  void judge_failure(const Participant& p, const Status& status) {
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
        right = recovering_;
        break;
      default:
        break;
    }
    if (!right) trouble(Outcome::error, fmt::format("rank {}: {}", p.rank, status.to_string()));
  }

  // ---- Calls ----

  // Of the members at present that are in none. `odd` makes the variant instead.
  void run_call(PlannedCall drawn, const PlannedCall* variant = nullptr, Rank odd = -1) {
    say(describe(drawn) +
        (variant != nullptr ? fmt::format("; rank {} calls {}", odd, describe(*variant)) : ""));
    ++verdict_.calls;
    calls_.push_back(std::move(drawn));
    const PlannedCall& planned = calls_.back();
    for (Rank r = 0; r < size(); ++r) {
      Participant& p = member(r);
      if (p.gone || p.task != Participant::Task::none) continue;
      p.buffers = std::make_unique<RankBuffers>(dice_, *p.transport, planned, r, variant);
      p.planned = variant != nullptr && r == odd ? variant : &planned;
      p.varied_call = variant != nullptr;
      p.task = Participant::Task::enter;
    }
    // Ranks enter the call one by one, whenever chance lets them.
    move_until_done();
    if (failed_ && fine()) ++verdict_.failed_calls;
  }

  void enter(Participant& p) {
    const Rank r = p.comm->rank();
    const PlannedCall& planned = *p.planned;
    p.buffers->fill(planned.call, r);
    p.plan = planned.plans[at(r)];
    p.work.reset();
    auto work = p.comm->start_work(request_of(planned, r, p.buffers->input(), p.buffers->output()));
    p.task = Participant::Task::none;
    if (!work.ok()) return trouble(Outcome::error, work.status().to_string());
    p.work = *std::move(work);
    p.task = Participant::Task::call;
    leave_if_done(p);
  }

  void use_check_plan(Participant& p) {
    const int ranks = p.comm->size();
    if (check_plans_.size() != at(ranks))
      check_plans_ = plain_plans("bruck", Collective::all_gather, ranks, 4096);
    p.comm->use_check_plan(check_plans_[at(p.comm->rank())]);
  }

  // When a rank's call is complete the results must be there.
  void leave_if_done(Participant& p) {
    if (!p.work->done()) return;
    const Rank r = p.comm->rank();
    const PlannedCall& planned = *p.planned;
    p.task = Participant::Task::none;
    const Status status = p.work->status();
    if (!status.ok()) {
      failed_ = true;
      judge_failure(p, status);
      if (status.code() == StatusCode::mismatch && limits_.strict &&
          p.buffers->touched(planned.call) && fine())
        trouble(Outcome::wrong,
                fmt::format("rank {} wrote its output before the mismatch was found", p.rank));
    } else if (!p.varied_call) {
      if (const std::string wrong = p.buffers->find_wrong(planned, r); !wrong.empty())
        trouble(Outcome::wrong, wrong);
    }
    p.buffers->spoil(planned.call);
    if (status.code() == StatusCode::aborted &&
        std::count(aborted_.begin(), aborted_.end(), p.rank) > 0)
      leave(p);
  }

  // A rank that aborted takes no part in what the others do then.
  void leave(Participant& p) {
    p.gone = true;
    p.buffers.reset();
    p.work.reset();  // it holds the communicator, too
    p.comm.reset();
  }

  // ---- Mismatches ----

  // One rank makes another call; all must have an error by the end of the next.
  void run_mismatch(int calls) {
    const int which = static_cast<int>(dice_.below(static_cast<std::uint64_t>(calls)));
    for (int i = 0; i <= which && fine(); ++i) {
      PlannedCall planned = draw_call(dice_, size(), room_);
      while (i == which && (planned.call.collective == Collective::send_recv || size() == 1 ||
                            planned.call.collective == Collective::barrier))
        planned = draw_call(dice_, size(), room_);
      if (i < which) {
        run_call(planned);
        continue;
      }
      planned.in_place = false;
      calls_.push_back(draw_variant(dice_, planned, room_));
      ++verdict_.mismatches;
      run_call(std::move(planned), &calls_.back(), dice_.between(0, size() - 1));
    }
    // Those that are through with it make the next; some only send, and may be through with that,
    // too, before they hear.
    for (int i = 0; i < kCallsAfter && fine() && !all_failed(); ++i) {
      PlannedCall next = draw_call(dice_, size(), room_);
      while (next.call.collective == Collective::send_recv) next = draw_call(dice_, size(), room_);
      run_call(std::move(next));
      if (i == 0 && fine() && !failed_) trouble(Outcome::wrong, "nobody noticed a mismatch");
    }
    if (fine() && !all_failed()) trouble(Outcome::wrong, "a mismatch was not told to all ranks");
  }

  bool all_failed() {
    for (Rank r = 0; r < size(); ++r)
      if (!member(r).gone && (!member(r).work || member(r).work->status().ok())) return false;
    return true;
  }

  // ---- Going on ----

  // Those that live agree on who they are and make a call as a smaller communicator; again, when
  // somebody dies meanwhile.
  void recover() {
    recovering_ = true;
    while (fine() && living() > 0) {
      if (!agree()) return;
      failed_ = false;
      run_call(draw_call(dice_, size(), room_));
      if (!failed_) return;
    }
  }

  // False when there is no going on, which is right only where somebody died silently.
  bool agree() {
    draw_fault_of_agreement();
    for (Rank r = 0; r < size(); ++r) {
      Participant& p = member(r);
      p.decision.reset();
      if (p.gone) continue;
      static_cast<void>(p.comm->revoke(runtime::revoked_by(p.comm->rank())));
      p.task = Participant::Task::agree;
      const Status begun = p.comm->begin_agreement(~(std::uint64_t{1} << r % 64), blob_of(p.rank));
      if (!begun.ok()) trouble(Outcome::error, begun.to_string());
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

  static std::string blob_of(Rank rank) { return fmt::format("rank {}", rank); }

  // Everybody who lives has a part in it.
  void judge_contributions(const Decision& decision) {
    for (Rank r = 0; r < size(); ++r) {
      if (member(r).gone || decision.lost[at(r)]) continue;
      if ((decision.flags >> r % 64 & 1) != 0 || decision.blobs[at(r)] != blob_of(members_[at(r)]))
        trouble(Outcome::wrong,
                fmt::format("the decision lacks what rank {} gave", members_[at(r)]));
    }
  }

  void go_on(const Decision& decision) {
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
      p.buffers.reset();  // some of it is the transport's
      p.work.reset();
      join(p, group, r);
      if (dice_.one_in(2)) p.former.clear();  // the others see it leave
    }
  }

  // ---- Moving ----

  // True when the rank moved.
  bool move(Participant& p) {
    if (p.gone || p.paused_until > turns_) return false;
    bool moved = false;
    switch (p.task) {
      case Participant::Task::enter:
        enter(p);
        moved = true;
        break;
      case Participant::Task::call:
        moved = p.comm->drive();
        if (p.task == Participant::Task::call) leave_if_done(p);
        break;
      case Participant::Task::agree:
        if (auto end = p.comm->move_agreement(moved)) {
          moved = true;
          p.task = Participant::Task::none;
          if (!end->ok())
            judge_failure(p, end->status());
          else
            p.decision = **end;
          // One that aborted between two calls finds out only here.
          if (end->status().code() == StatusCode::aborted) leave(p);
        }
        break;
      case Participant::Task::none:
        moved = p.comm->drive();
        break;
    }
    if (!p.former.empty() && ++p.moves % kMovesPerLookBack == 0)
      for (const auto& old : p.former) moved |= old->drive();
    return moved;
  }

  bool all_done() const {
    return std::all_of(participants_.begin(), participants_.end(), [](const Participant& p) {
      return p.gone || p.task == Participant::Task::none;
    });
  }

  bool all_waiting() const {
    return std::all_of(participants_.begin(), participants_.end(), [](const Participant& p) {
      return p.gone || p.task != Participant::Task::none;
    });
  }

  void move_until_done() {
    const auto ranks = static_cast<std::uint64_t>(participants_.size());
    const std::uint64_t actors = ranks + network_share_;
    const std::uint64_t last_turn = turns_ + kMovesPerActorMax * actors;
    std::uint64_t idle = 0;
    asked_ = stuck_in_call_ = false;
    while (fine() && !stuck_ && !stuck_in_call_ && !all_done()) {
      strike_due();
      const std::uint64_t actor = world_->random(actors);
      const bool moved = actor >= ranks ? world_->step() : move(participants_[actor]);
      idle = moved ? 0 : idle + 1;
      if (idle > 2 * actors && !anything_moves()) stand_still();
      if (turns_ > last_turn) trouble(Outcome::hang, "moves for ever: " + describe_hang());
    }
  }

  // Everybody, again and again; true when anything moved.
  bool anything_moves() {
    for (Participant& p : participants_) p.paused_until = 0;
    for (int i = 0; i < kPatienceSweeps; ++i) {
      bool moved = world_->step();
      for (Participant& p : participants_) moved |= move(p);
      if (moved || !fine()) return true;
    }
    return false;
  }

  // Nothing is in flight, nobody moves: what is left is what time brings. First those that wait ask
  // whom they wait for; then, where somebody is silent, the deadline passes.
  void stand_still() {
    if (!std::exchange(asked_, true)) {
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
  void give_up_agreement(Participant& p) {
    const Status status = p.comm->give_up_agreement(std::chrono::milliseconds(1));
    const Rank whom = status.culprit();
    if (whom < 0 || !world_->killed_silently(members_[at(whom)]))
      trouble(Outcome::error, fmt::format("rank {}: {}", p.rank, status.to_string()));
    stuck_ = true;
  }

  std::string describe_hang() {
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

  void finish() {
    verdict_.events = world_->event_count();
    verdict_.event_hash = world_->event_hash();
    verdict_.damaged_frames = world_->damaged_frames();
    for (Participant& p : participants_) {
      p.buffers.reset();
      p.comm.reset();
      p.former.clear();
      p.work.reset();
    }
    if (world_->region_count() != 0)
      trouble(Outcome::leak, fmt::format("{} regions are left", world_->region_count()));
  }

  Dice dice_;
  ChaosLimits limits_;
  ChaosVerdict verdict_;
  CallRoom room_;
  std::uint64_t network_share_ = 1;  // of moves, where every rank has one
  bool checked_ = false;
  std::unique_ptr<transport::SimWorld> world_;
  std::vector<Participant> participants_;
  std::vector<Rank> members_;  // of the communicator at present, by rank there
  Plans check_plans_;
  std::deque<PlannedCall> calls_;
  bool failed_ = false;
  bool recovering_ = false;
  bool stuck_ = false;
  bool asked_ = false;
  bool stuck_in_call_ = false;
  std::vector<Fault> faults_;
  std::vector<Rank> aborted_;
  std::uint64_t turns_ = 0;
};

}  // namespace

ChaosVerdict run_chaos_world(std::uint64_t seed, const ChaosLimits& limits, bool tell_events) {
  return ChaosWorld(seed, limits, tell_events).run();
}

}  // namespace tutti::cli
