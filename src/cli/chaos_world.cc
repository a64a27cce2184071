// Draws a world and its calls from the seed, lets chance decide who moves next, and checks.
#include "cli/chaos_world.hpp"

#include <memory>

#include <fmt/format.h>

#include "cli/chaos_oracle.hpp"
#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "runtime/executor.hpp"
#include "transport/sim/transport.hpp"
#include "transport/sim/world.hpp"

namespace tutti::cli {
namespace {

using collectives::Algorithm;
using collectives::LoweredProgram;
using collectives::Plan;
using Outcome = ChaosVerdict::Outcome;

constexpr double kUntouched = 99;
constexpr double kReused = 111;
constexpr std::size_t kSlices = 24;  // at most about so many in a call of small slices

std::size_t at(int value) { return static_cast<std::size_t>(value); }

// Reproducible choices for the shape of the world, before there is a world to ask.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 0x1234567) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15ULL;  // splitmix64
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) % bound;
  }
  int between(int low, int high) {
    return low + static_cast<int>(below(static_cast<std::uint64_t>(high - low + 1)));
  }
  template <typename Array>
  auto one_of(const Array& array) {
    return array[below(std::size(array))];
  }

 private:
  std::uint64_t state_;
};

// A call as the ranks make it.
struct PlannedCall {
  ChaosCall call;
  const Algorithm* algorithm = nullptr;
  int group = 1;
  collectives::PlanSettings settings;
  bool in_place = false;
  std::vector<Plan> plans;  // by rank
};

// One rank's buffers for a call.
struct RankBuffers {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<std::pair<std::byte*, bool>> owned;  // and whether it is the transport's
};

class ChaosWorld {
 public:
  ChaosWorld(std::uint64_t seed, const ChaosLimits& limits, bool tell_events)
      : dice_(seed), limits_(limits), tell_events_(tell_events) {
    transport::SimOptions options;
    options.seed = seed;
    options.size = dice_.between(limits.ranks_min, limits.ranks_max);
    options.channel_count = dice_.between(1, 3);
    options.frame_bytes_max = at(dice_.between(4, 32)) * 128;
    options.queue_frames_max = dice_.between(2, 6);
    options.ranks_per_host = dice_.between(1, options.size);
    options.meanwhile_per_mille = dice_.between(0, 1) * 100;
    world_ = std::make_unique<transport::SimWorld>(options);
    if (tell_events_)
      world_->observe([this](const transport::SimEvent& event) { say("  " + to_string(event)); });
    for (Rank r = 0; r < options.size; ++r) {
      transports_.push_back(transport::make_sim_transport(*world_, r));
      executors_.push_back(std::make_unique<runtime::Executor>(*transports_.back()));
    }
    say(
        fmt::format("seed {}: {} ranks, {} to a host, {} channels, frames of {} bytes, queues of "
                    "at most {}",
                    seed, options.size, options.ranks_per_host, options.channel_count,
                    options.frame_bytes_max, options.queue_frames_max));
  }

  ChaosVerdict run() {
    const int calls = dice_.between(1, limits_.calls_max);
    draw_kills();
    for (int i = 0; i < calls && verdict_.outcome == Outcome::right; ++i) run_call();
    verdict_.events = world_->event_count();
    verdict_.event_hash = world_->event_hash();
    return std::move(verdict_);
  }

 private:
  int ranks() const { return world_->options().size; }

  void say(std::string line) { verdict_.story.push_back(std::move(line)); }

  void trouble(Outcome outcome, std::string text) {
    verdict_.outcome = outcome;
    verdict_.trouble = std::move(text);
  }

  // Nobody, one rank or two, at any time; but never all of them. As often each, where there are
  // three ranks or more.
  void draw_kills() {
    if (!limits_.faults || ranks() == 1) return;
    const int kills = dice_.between(0, std::min(2, ranks() - 1));
    const std::uint64_t horizons[] = {50, 500, 5000};
    for (int i = 0; i < kills; ++i) {
      const std::uint64_t turn = dice_.below(dice_.one_of(horizons));
      kills_.emplace_back(turn, dice_.between(0, ranks() - 1));
    }
  }

  // Those whose turn has come die.
  void kill_due() {
    for (auto& [turn, rank] : kills_) {
      if (turn != turns_ || world_->killed(rank)) continue;
      world_->kill(rank);
      ++verdict_.kills;
      say(fmt::format("  rank {} dies at turn {}", rank, turns_));
    }
    ++turns_;
  }

  bool is_dead(Rank rank) const { return world_->killed(rank); }

  // An error is right when it names a rank that died.
  void judge_failure(const Status& status) {
    if (status.code() == StatusCode::peer_lost && status.culprit() >= 0 &&
        status.culprit() < ranks() && is_dead(status.culprit()))
      return;
    trouble(Outcome::error, status.to_string());
  }

  PlannedCall draw_call() {
    PlannedCall planned;
    ChaosCall& call = planned.call;
    Result<Schedule> schedule = Status(StatusCode::internal, "not drawn");
    while (!schedule.ok()) {  // some algorithms do not serve every number of ranks
      const auto algorithms = collectives::all_algorithms();
      planned.algorithm = &algorithms[dice_.below(algorithms.size())];
      planned.group = planned.algorithm->grouped ? dice_.between(2, 4) : 1;
      call.root = dice_.between(0, ranks() - 1);
      schedule = collectives::build(*planned.algorithm, ranks(), call.root, planned.group);
    }
    call.collective = planned.algorithm->collective;
    call.ranks = ranks();
    call.type = dice_.one_of(kAllDataTypes);
    call.op = dice_.one_of(kAllReduceOps);
    const std::uint64_t magnitudes[] = {2, 20, 300, 2000};
    call.count = call.collective == Collective::barrier ? 0 : dice_.below(dice_.one_of(magnitudes));
    planned.settings.channels = dice_.between(1, world_->options().channel_count);
    planned.settings.slice_bytes = draw_slice_bytes(planned, schedule->shape);
    planned.settings.direct = dice_.below(2) == 0;
    planned.in_place = dice_.below(2) == 0 && call.collective != Collective::all_to_all &&
                       call.collective != Collective::send_recv;
    for (LoweredProgram& program : collectives::lower_all(*schedule))
      planned.plans.push_back(Plan{std::string(planned.algorithm->name), planned.settings,
                                   std::make_shared<LoweredProgram>(std::move(program)), 1});
    return planned;
  }

  // Mostly a third of a frame or more. Now and then so small that the call has more slices than the
  // executor's window holds, but not hundreds of them.
  std::size_t draw_slice_bytes(const PlannedCall& planned, const ScheduleShape& shape) {
    const std::size_t frame = world_->options().frame_bytes_max;
    if (dice_.below(8) != 0) return frame / (1 + dice_.below(3));
    const std::size_t element = size_of(planned.call.type);
    std::size_t bytes = at(shape.message_chunks_max) * element;
    while (bytes < frame && collectives::slices_needed(shape, planned.call.count, element,
                                                       planned.settings.channels, bytes) > kSlices)
      bytes *= 2;
    return std::min(bytes, frame);
  }

  std::string describe(const PlannedCall& planned) const {
    const ChaosCall& c = planned.call;
    return fmt::format("{} {} of {} x {}, {}, root {}, group {}, {} channels, slices of {}, {}{}",
                       planned.algorithm->name, to_string(c.collective), c.count, to_string(c.type),
                       to_string(c.op), c.root, planned.group, planned.settings.channels,
                       planned.settings.slice_bytes, planned.settings.direct ? "direct" : "staged",
                       planned.in_place ? ", in place" : "");
  }

  // Memory that peers may or may not be able to address.
  std::byte* allocate(Rank rank, std::size_t bytes, RankBuffers& buffers) {
    const bool shareable = dice_.below(2) == 0;
    void* memory = shareable ? transports_[at(rank)]->allocate_shareable(bytes + 1) : nullptr;
    const bool is_transports = memory != nullptr;
    if (!is_transports) memory = ::operator new(bytes + 1);
    buffers.owned.emplace_back(static_cast<std::byte*>(memory), is_transports);
    return static_cast<std::byte*>(memory);
  }

  RankBuffers make_buffers(const PlannedCall& planned, Rank rank) {
    const ChaosCall& c = planned.call;
    const std::size_t element = size_of(c.type);
    RankBuffers buffers;
    const bool only_root =
        c.collective == Collective::gather || c.collective == Collective::scatter;
    if (planned.in_place && (!only_root || rank == c.root)) {
      const std::size_t block = at(rank) * c.count * element;
      std::byte* memory =
          allocate(rank, std::max(input_count(c), output_count(c)) * element, buffers);
      const bool gathers =
          c.collective == Collective::all_gather || c.collective == Collective::gather;
      const bool scatters =
          c.collective == Collective::reduce_scatter || c.collective == Collective::scatter;
      buffers.input = memory + (gathers ? block : 0);
      buffers.output = memory + (scatters ? block : 0);
    } else {
      buffers.input = allocate(rank, input_count(c) * element, buffers);
      buffers.output = allocate(rank, output_count(c) * element, buffers);
    }
    return buffers;
  }

  // When a rank enters the call, and not before: until then its memory is its own, and what a peer
  // stored there too early is lost, as it should be.
  void fill(const ChaosCall& c, Rank rank, const RankBuffers& buffers) {
    const bool in_place = buffers.owned.size() == 1;
    for (std::size_t i = 0; i < output_count(c) && !in_place; ++i)
      store(c.type, buffers.output, i, kUntouched);
    for (std::size_t i = 0; i < input_count(c); ++i)
      store(c.type, buffers.input, i, contribution(c, rank, i));
  }

  // When a rank's call is complete its memory is its own again: the results must be there, and what
  // the rank then does to its buffers must harm nobody.
  void leave(const PlannedCall& planned, Rank rank, const RankBuffers& buffers) {
    check(planned, rank, buffers);
    const ChaosCall& c = planned.call;
    for (std::size_t i = 0; i < output_count(c); ++i) store(c.type, buffers.output, i, kReused);
    for (std::size_t i = 0; i < input_count(c); ++i) store(c.type, buffers.input, i, kReused);
  }

  void release(Rank rank, const RankBuffers& buffers) {
    for (const auto& [memory, is_transports] : buffers.owned) {
      if (is_transports)
        transports_[at(rank)]->release_shareable(memory);
      else
        ::operator delete(memory);
    }
  }

  void run_call() {
    const PlannedCall planned = draw_call();
    say(describe(planned));
    std::vector<RankBuffers> buffers;
    for (Rank r = 0; r < ranks(); ++r) buffers.push_back(make_buffers(planned, r));
    ++sequence_;
    ++verdict_.calls;
    // Ranks enter the call one by one, whenever chance lets them.
    waiting_to_start_.assign(at(ranks()), true);
    move_until_done(planned, buffers);
    for (Rank r = 0; r < ranks(); ++r)
      if (!is_dead(r) && !executors_[at(r)]->status().ok()) {
        ++verdict_.failed_calls;
        break;
      }
    for (Rank r = 0; r < ranks(); ++r) release(r, buffers[at(r)]);
  }

  // True when the rank moved.
  bool move_rank(const PlannedCall& planned, const std::vector<RankBuffers>& buffers, Rank rank) {
    runtime::Executor& executor = *executors_[at(rank)];
    if (waiting_to_start_[at(rank)]) {
      const ChaosCall& c = planned.call;
      waiting_to_start_[at(rank)] = false;
      fill(c, rank, buffers[at(rank)]);
      runtime::Call call;
      call.signature = {
          sequence_, c.collective,         c.type, c.op, planned.settings.direct, c.root,
          c.count,   planned.plans[0].hash};
      call.input = buffers[at(rank)].input;
      call.output = buffers[at(rank)].output;
      const Status status = executor.start(call, planned.plans[at(rank)]);
      if (!status.ok()) judge_failure(status);
      return true;
    }
    if (executor.done()) {
      static_cast<void>(transports_[at(rank)]->poll());
      return false;
    }
    const Result<bool> polled = transports_[at(rank)]->poll();
    const bool moved = executor.advance();
    // What arrived before a peer was lost may have been all that this call needed.
    if (!polled.ok() && !executor.done()) executor.fail(polled.status());
    if (!executor.status().ok())
      judge_failure(executor.status());
    else if (executor.done())
      leave(planned, rank, buffers[at(rank)]);
    return moved || !polled.ok() || *polled;
  }

  bool deliver() { return world_->step(); }

  bool all_done() const {
    for (Rank r = 0; r < ranks(); ++r)
      if (!is_dead(r) && (waiting_to_start_[at(r)] || !executors_[at(r)]->done())) return false;
    return true;
  }

  void move_until_done(const PlannedCall& planned, const std::vector<RankBuffers>& buffers) {
    const auto actors = static_cast<std::uint64_t>(ranks()) + 1;
    std::uint64_t idle = 0;
    while (verdict_.outcome == Outcome::right && !all_done()) {
      kill_due();
      const std::uint64_t actor = world_->random(actors);
      const auto rank = static_cast<Rank>(actor);
      bool moved = false;
      if (actor + 1 == actors)
        moved = deliver();
      else if (!is_dead(rank))
        moved = move_rank(planned, buffers, rank);
      idle = moved ? 0 : idle + 1;
      if (idle > 2 * actors && !sweep(planned, buffers)) {
        // Nothing in flight, nobody moves: nothing will ever happen again.
        trouble(Outcome::hang, describe_hang());
      }
    }
  }

  // Everybody once; true when anything moved.
  bool sweep(const PlannedCall& planned, const std::vector<RankBuffers>& buffers) {
    bool moved = deliver();
    for (Rank r = 0; r < ranks(); ++r)
      if (!is_dead(r)) moved |= move_rank(planned, buffers, r);
    return moved || verdict_.outcome != Outcome::right;
  }

  std::string describe_hang() const {
    std::string text = "hang:";
    for (Rank r = 0; r < ranks(); ++r)
      if (!is_dead(r) && !executors_[at(r)]->done())
        text += fmt::format(" rank {} waits for {};", r, executors_[at(r)]->awaited().what);
    return text;
  }

  void check(const PlannedCall& planned, Rank rank, const RankBuffers& buffers) {
    const ChaosCall& c = planned.call;
    for (std::size_t i = 0; i < output_count(c); ++i) {
      const std::optional<double> wanted = expected(c, rank, i);
      if (!wanted && planned.in_place) continue;
      const double got = load(c.type, buffers.output, i);
      // Rounded to the type as a store would.
      std::byte rounded[8];
      store(c.type, rounded, 0, wanted.value_or(kUntouched));
      if (got != load(c.type, rounded, 0))
        return trouble(Outcome::wrong,
                       fmt::format("rank {} element {}: {} instead of {} ({})", rank, i, got,
                                   load(c.type, rounded, 0), describe(planned)));
    }
  }

  Dice dice_;
  ChaosLimits limits_;
  bool tell_events_;
  ChaosVerdict verdict_;
  std::unique_ptr<transport::SimWorld> world_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<runtime::Executor>> executors_;
  std::vector<bool> waiting_to_start_;
  std::vector<std::pair<std::uint64_t, Rank>> kills_;  // when, who
  std::uint64_t turns_ = 0;
  std::uint32_t sequence_ = 0;
};

}  // namespace

ChaosVerdict run_chaos_world(std::uint64_t seed, const ChaosLimits& limits, bool tell_events) {
  return ChaosWorld(seed, limits, tell_events).run();
}

}  // namespace tutti::cli
