// Draws a world and its calls from the seed, and checks what comes of them.
#include "cli/chaos_world.hpp"

#include <algorithm>

#include "cli/chaos_scene.hpp"
#include "transport/checked/transport.hpp"
#include "transport/sim/transport.hpp"

namespace tutti::cli {
namespace {

using runtime::CommunicatorState;
using Outcome = ChaosVerdict::Outcome;

constexpr int kCallsAfter = 4;     // a mismatch, until all ranks know
constexpr std::size_t kEarly = 2;  // looks of each rank

std::size_t at(int value) { return static_cast<std::size_t>(value); }

}  // namespace

ChaosWorld::ChaosWorld(std::uint64_t seed, const ChaosLimits& limits, const ChaosListener& listener)
    : dice_(seed), limits_(limits), listener_(listener) {
  transport::SimOptions options;
  options.seed = seed;
  options.size = dice_.between(limits.ranks_min, limits.ranks_max);
  room_.channels = dice_.between(1, 3);
  room_.varied = !limits.mismatches;  // of other sizes not all ranks know
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
    options.damaged_max = 1 + dice_.below(16);
  }
  if (limits.faults) direct_messages_ = dice_.one_in(3);
  world_ = std::make_unique<transport::SimWorld>(options);
  if (listener_.events)
    world_->observe([this](const transport::SimEvent& event) { say("  " + to_string(event)); });
  room_.frame_bytes = options.frame_bytes_max - (checked_ ? transport::kChecksumBytes : 0);
  participants_.resize(at(options.size));
  waking_ = ChaosTurns(options.size);
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

ChaosVerdict ChaosWorld::run() {
  const int calls = dice_.between(1, limits_.calls_max);
  const bool faults = limits_.faults && size() > 1;
  if (faults) draw_faults();
  if (limits_.mismatches)
    run_mismatch(calls);
  else
    for (int i = 0; i < calls && fine() && !failed_; ++i)
      if (faults && dice_.one_in(4))
        run_messages();
      else
        run_call(draw_call_after(calls_, dice_, size(), room_));
  // Those that were through before the failure go on, and must not wait for ever.
  if (failed_ && fine() && faults) {
    if (astray_)
      go_astray();
    else if (dice_.one_in(2))
      run_call(draw_call(dice_, size(), room_));
  }
  if (failed_ && fine() && !limits_.mismatches) recover();
  finish();
  return std::move(verdict_);
}

void ChaosWorld::draw_faults() {
  faults_.draw(dice_, size());
  if (dice_.one_in(3)) draw_slowness();
  astray_ = dice_.one_in(2);
  if (!astray_) return;
  const ChaosHabits habits(dice_);
  for (Participant& p : participants_) p.habit = habits.draw(dice_);
}

// What comes to a slow rank comes all at once, data as well as news: it may still touch memory of
// others for which the call is over.
void ChaosWorld::draw_slowness() {
  const std::uint64_t magnitudes[] = {10, 60, 300};
  const std::uint64_t slowness = dice_.one_of(magnitudes);
  const std::uint64_t of_three = 1 + dice_.below(2);
  for (Participant& p : participants_)
    if (dice_.below(3) < of_three) p.slowness = slowness;
  all_shareable_ = dice_.one_in(2);
  room_.direct = all_shareable_;
  if (!dice_.one_in(4))
    faults_.add({dice_.below(kEarly * slowness * at(size())), dice_.between(0, size() - 1),
                 Fault::Kind::abort});
}

void ChaosWorld::trouble(Outcome outcome, std::string text) {
  if (!fine()) return;
  verdict_.outcome = outcome;
  verdict_.trouble = std::move(text);
}

// ---- Communicators ----

void ChaosWorld::join(Participant& p, int group, Rank rank) {
  runtime::CommunicatorParts parts;
  parts.transport = transport::make_sim_transport(*world_, rank, group);
  if (checked_)
    parts.transport = transport::make_checked_transport(std::move(parts.transport),
                                                        static_cast<std::uint64_t>(group));
  p.transport = parts.transport.get();
  parts.patience = {4, 2};
  parts.config.flight = base::FlightChoice::off;
  parts.config.progress = base::ProgressChoice::off;  // all is one thread, and so repeatable
  parts.config.slow_after = std::chrono::milliseconds(0);
  if (limits_.strict) parts.config.check = base::CheckChoice::strict;
  parts.plan_source = [&p](const collectives::PlanQuery&) { return p.plan; };
  if (direct_messages_) {
    parts.planner_options.direct_possible = true;
    parts.planner_options.lowering = collectives::Lowering::direct;
  }
  if (p.comm) p.former.push_back(std::move(p.comm));
  p.group = group;
  p.error = Status();
  p.partners.clear();
  p.comm = std::make_shared<CommunicatorState>(std::move(parts));
  if (limits_.strict) use_check_plan(p);
}

// ---- Calls ----

// Of the members at present that are in none. `odd` makes the variant instead.
void ChaosWorld::run_call(PlannedCall drawn, const PlannedCall* variant, Rank odd) {
  say(describe(drawn) +
      (variant != nullptr ? fmt::format("; rank {} calls {}", odd, describe(*variant)) : ""));
  ++verdict_.calls;
  calls_.push_back(std::move(drawn));
  const PlannedCall& planned = calls_.back();
  oracle_.emplace(planned.call);
  for (Rank r = 0; r < size(); ++r) {
    Participant& p = member(r);
    if (!p.gone && p.task == Participant::Task::none && calls(p)) prepare(p, planned, variant, odd);
  }
  // Ranks enter the call one by one, whenever chance lets them.
  move_until_done();
  if (failed_ && fine()) ++verdict_.failed_calls;
}

void ChaosWorld::prepare(Participant& p, const PlannedCall& planned, const PlannedCall* variant,
                         Rank odd) {
  const Rank r = p.comm->rank();
  judge_memory(p);
  p.buffers =
      std::make_unique<RankBuffers>(dice_, *p.transport, planned, r, variant, all_shareable_);
  p.planned = variant != nullptr && r == odd ? variant : &planned;
  p.varied_call = variant != nullptr;
  p.task = Participant::Task::enter;
}

// Of one that failed; whoever makes different calls goes on all the same, to be told again.
bool ChaosWorld::knows_of_failure(const Participant& p) const {
  return limits_.faults && !p.error.ok();
}

void ChaosWorld::enter(Participant& p) {
  const Rank r = p.comm->rank();
  const PlannedCall& planned = *p.planned;
  p.buffers->fill(planned.call, r);
  if (!planned.is_message()) p.plan = planned.plans[at(r)];
  note_peers(p);
  p.work.reset();
  auto request = request_of(planned, r, p.buffers->input(), p.buffers->output());
  runtime::Blocks blocks;
  if (planned.call.varied()) {
    blocks = blocks_of(planned.call, r, p.buffers->input(), p.buffers->output());
    vary(request, planned.call, blocks);
  }
  auto work = p.comm->start_work(request);
  p.task = Participant::Task::none;
  end_task();
  if (!work.ok()) return trouble(Outcome::error, work.status().to_string());
  p.work = *std::move(work);
  p.task = Participant::Task::call;
  leave_if_done(p);
}

void ChaosWorld::use_check_plan(Participant& p) {
  const int ranks = p.comm->size();
  if (check_plans_.size() != at(ranks))
    check_plans_ = plain_plans("bruck", Collective::all_gather, ranks, 4096);
  p.comm->use_check_plan(check_plans_[at(p.comm->rank())]);
}

// When a rank's call is complete the results must be there.
void ChaosWorld::leave_if_done(Participant& p) {
  if (!p.work->done()) return;
  const Rank r = p.comm->rank();
  const PlannedCall& planned = *p.planned;
  p.task = Participant::Task::none;
  end_task();
  const Status status = p.work->status();
  judge_end(p, status);
  if (!status.ok()) {
    failed_ = true;
    judge_failure(p, status);
    if (status.code() == StatusCode::mismatch && limits_.strict &&
        p.buffers->touched(planned.call, r) && fine())
      trouble(Outcome::wrong,
              fmt::format("rank {} wrote its output before the mismatch was found", p.rank));
  } else if (!p.varied_call) {
    std::optional<ChaosOracle> own;
    if (planned.is_message()) own.emplace(planned.call);
    if (const std::string wrong = p.buffers->find_wrong(planned, r, own ? *own : *oracle_);
        !wrong.empty())
      trouble(Outcome::wrong, wrong);
  }
  p.buffers->spoil(planned.call, r);
  if (status.code() == StatusCode::aborted &&
      std::count(aborted_.begin(), aborted_.end(), p.rank) > 0)
    return leave(p);
  if (!status.ok()) follow_habit(p);
  if (p.task == Participant::Task::none) next_message(p);
}

// A rank that aborted takes no part in what the others do then.
void ChaosWorld::leave(Participant& p) {
  judge_memory(p);
  p.gone = true;
  end_task();
  p.script.clear();
  p.buffers.reset();
  p.work.reset();  // it holds the communicator, too
  p.comm.reset();
  waking_.wake_all();  // whoever looks sees it
}

// ---- Mismatches ----

// One rank makes another call; all must have an error by the end of the next.
void ChaosWorld::run_mismatch(int calls) {
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
    if (limits_.strict && fine() && !all_failed())
      trouble(Outcome::wrong, "a rank made a call although another made a different one");
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

bool ChaosWorld::all_failed() {
  for (Rank r = 0; r < size(); ++r)
    if (!member(r).gone && (!member(r).work || member(r).work->status().ok())) return false;
  return true;
}

void ChaosWorld::finish() {
  verdict_.events = world_->event_count();
  verdict_.event_hash = world_->event_hash();
  verdict_.damaged_frames = world_->damaged_frames();
  for (Participant& p : participants_) {
    judge_memory(p);
    p.buffers.reset();
    p.comm.reset();
    p.former.clear();
    p.work.reset();
  }
  if (world_->region_count() != 0)
    trouble(Outcome::leak, fmt::format("{} regions are left", world_->region_count()));
}

ChaosVerdict run_chaos_world(std::uint64_t seed, const ChaosLimits& limits,
                             const ChaosListener& listener) {
  return ChaosWorld(seed, limits, listener).run();
}

}  // namespace tutti::cli
