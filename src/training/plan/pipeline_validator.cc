// pipeline_validator.cc: counts first, then a run without clock, then the claimed times.
#include "training/plan/pipeline_validator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

// The tables below are as large as stages x micro-batches.
constexpr std::int64_t kMostCells = std::int64_t{1} << 24;

// Deadlocks may hold thousands of ranks; the first ones tell the story.
constexpr int kWaitersTold = 4;

Status invalid(std::string text) { return {StatusCode::invalid_argument, std::move(text)}; }

std::string sentence(const PipelineSchedule& schedule, int rank, const Action& action) {
  return fmt::format("rank {}'s {}", rank, to_string(schedule, rank, action));
}

Status check_extents(const PipelineSchedule& schedule) {
  if (schedule.ranks.empty()) return invalid("a schedule without ranks");
  if (schedule.chunks_per_rank < 1 || schedule.micro_batches < 1) {
    return invalid(fmt::format("a schedule of {} chunks and {} micro-batches: at least 1 of each",
                               schedule.chunks_per_rank, schedule.micro_batches));
  }
  const double cells = static_cast<double>(schedule.ranks.size()) * schedule.chunks_per_rank *
                       schedule.micro_batches;
  if (cells > static_cast<double>(kMostCells))
    return invalid(fmt::format("a schedule of {:.0f} stages x micro-batches; {} are the limit",
                               cells, kMostCells));
  return {};
}

// What one rank has done so far of each (chunk, micro-batch).
class Counter {
 public:
  Counter(const PipelineSchedule& schedule, int rank)
      : schedule_(schedule),
        rank_(rank),
        seen_(static_cast<std::size_t>(schedule.chunks_per_rank) *
              static_cast<std::size_t>(schedule.micro_batches)) {}

  Status add(const Action& action) {
    if (action.chunk < 0 || action.chunk >= schedule_.chunks_per_rank || action.micro_batch < 0 ||
        action.micro_batch >= schedule_.micro_batches) {
      return invalid(
          fmt::format("rank {} has {} of chunk {} and micro-batch {}, but there are {} "
                      "chunks and {} micro-batches",
                      rank_, letter(action.kind), action.chunk, action.micro_batch,
                      schedule_.chunks_per_rank, schedule_.micro_batches));
    }
    Seen& seen = seen_[index(action.chunk, action.micro_batch)];
    const std::string who = sentence(schedule_, rank_, action);
    if (seen[action.kind]) return invalid(who + " comes twice");
    if (const char* wrong = broken_rule(seen, action.kind)) return invalid(who + wrong);
    seen[action.kind] = true;
    return {};
  }

  Status complete() const {
    for (int chunk = 0; chunk < schedule_.chunks_per_rank; ++chunk) {
      for (int micro_batch = 0; micro_batch < schedule_.micro_batches; ++micro_batch) {
        const Seen& seen = seen_[index(chunk, micro_batch)];
        Action missing{Action::forward, chunk, micro_batch};
        if (seen[Action::backward] || seen[Action::backward_weight]) continue;
        if (seen[Action::backward_input])
          missing.kind = Action::backward_weight;
        else if (seen[Action::forward])
          missing.kind = Action::backward;
        return invalid(sentence(schedule_, rank_, missing) + " is missing");
      }
    }
    return {};
  }

 private:
  using Seen = std::array<bool, 4>;  // by kind

  static const char* broken_rule(const Seen& seen, Action::Kind kind) {
    switch (kind) {
      case Action::forward:
        return nullptr;  // a backward before it was refused already
      case Action::backward:
        if (!seen[Action::forward]) return " comes before the forward";
        return seen[Action::backward_input] ? " comes after a backward of input" : nullptr;
      case Action::backward_input:
        if (!seen[Action::forward]) return " comes before the forward";
        return seen[Action::backward] ? " comes after a whole backward" : nullptr;
      case Action::backward_weight:
        return seen[Action::backward_input] ? nullptr : " comes before the backward of input";
    }
    return " is of no kind that we know";
  }

  std::size_t index(int chunk, int micro_batch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(schedule_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  const PipelineSchedule& schedule_;
  int rank_;
  std::vector<Seen> seen_;
};

Status check_counts(const PipelineSchedule& schedule) {
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    Counter counter(schedule, rank);
    for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)])
      if (Status added = counter.add(action); !added.ok()) return added;
    if (Status complete = counter.complete(); !complete.ok()) return complete;
  }
  return {};
}

std::string name_of(const Dependency& what, int micro_batch) {
  return fmt::format("{}{}{}", what.stage, what.forward ? "F" : "B", micro_batch);
}

Status check_progress(const PipelineSchedule& schedule) {
  const std::vector<std::size_t> positions = play(schedule, [](int, std::size_t) {});
  std::string waits;
  int waiters = 0;
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    const std::vector<Action>& actions = schedule.ranks[static_cast<std::size_t>(rank)];
    const std::size_t at = positions[static_cast<std::size_t>(rank)];
    if (at == actions.size()) continue;
    if (++waiters > kWaitersTold) continue;
    const Action& action = actions[at];
    const auto need =
        dependency(action.kind, schedule.stage_of(rank, action.chunk), schedule.stages());
    TRAINING_CHECK(need, "what depends on nothing does not wait");
    waits += fmt::format("{}{} waits for {} of rank {}", waiters > 1 ? ", " : "",
                         sentence(schedule, rank, action), name_of(*need, action.micro_batch),
                         schedule.rank_of_stage(need->stage));
  }
  if (waiters == 0) return {};
  if (waiters > kWaitersTold) waits += fmt::format(", and {} more ranks", waiters - kWaitersTold);
  return invalid("the ranks wait for each other for ever: " + waits);
}

// When every forward and input gradient is said to run.
using Times = DependencyTable<const TimedAction*>;

Times times_of(const PipelineChart& chart, const PipelineSchedule& schedule) {
  Times times(schedule);
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    for (const TimedAction& each : chart.ranks[static_cast<std::size_t>(rank)]) {
      const Action& action = each.action;
      if (action.kind == Action::backward_weight) continue;
      const Dependency made{is_forward(action.kind), schedule.stage_of(rank, action.chunk)};
      times.of(made, action.micro_batch) = &each;
    }
  }
  return times;
}

// One rank's actions take what they should, one after the other.
Status check_lane(const PipelineSchedule& schedule, const std::vector<TimedAction>& lane, int rank,
                  const Durations& durations) {
  std::int64_t free_at = 0;
  for (const TimedAction& each : lane) {
    const std::string who = sentence(schedule, rank, each.action);
    if (each.start < free_at) {
      return invalid(
          fmt::format("{} starts at {}, but the rank is busy until {}", who, each.start, free_at));
    }
    const std::int64_t wanted = durations.of(each.action.kind);
    if (each.end < each.start || each.end - each.start != wanted) {
      return invalid(
          fmt::format("{} is from {} to {}, but takes {}", who, each.start, each.end, wanted));
    }
    free_at = each.end;
  }
  return {};
}

// All that the action is computed from, the turning point at the last stage first: that a gradient
// came before the loss says more than that it came before the next stage's gradient.
std::vector<Dependency> origins(Action::Kind kind, int stage, int stages) {
  std::vector<Dependency> found;
  if (!is_forward(kind)) found.push_back({true, stages - 1});
  if (const auto need = dependency(kind, stage, stages)) found.push_back(*need);
  return found;
}

Status check_origins(const PipelineSchedule& schedule, const Times& times, const TimedAction& each,
                     int rank, const Durations& durations) {
  const Action& action = each.action;
  const int stage = schedule.stage_of(rank, action.chunk);
  for (const Dependency& need : origins(action.kind, stage, schedule.stages())) {
    const int source = schedule.rank_of_stage(need.stage);
    const std::int64_t delay = source == rank ? 0 : durations.message;
    const TimedAction& origin = *times.of(need, action.micro_batch);
    if (each.start - delay >= origin.end) continue;
    return invalid(fmt::format("{} starts at {}, but {}, which it needs, ends at {}{}",
                               sentence(schedule, rank, action), each.start,
                               sentence(schedule, source, origin.action), origin.end,
                               delay > 0 ? fmt::format(" and travels for {}", delay) : ""));
  }
  return {};
}

}  // namespace

std::int64_t Durations::of(Action::Kind kind) const {
  switch (kind) {
    case Action::forward:
      return forward;
    case Action::backward:
      return backward_input + backward_weight;
    case Action::backward_input:
      return backward_input;
    case Action::backward_weight:
      return backward_weight;
  }
  return 0;
}

Status validate(const PipelineSchedule& schedule) {
  if (Status extents = check_extents(schedule); !extents.ok()) return extents;
  if (Status counts = check_counts(schedule); !counts.ok()) return counts;
  return check_progress(schedule);
}

Status validate(const PipelineChart& chart, const Durations& durations) {
  const PipelineSchedule schedule = chart.schedule();
  if (Status order = validate(schedule); !order.ok()) return order;
  const Times times = times_of(chart, schedule);
  for (int rank = 0; rank < chart.rank_count(); ++rank) {
    const std::vector<TimedAction>& lane = chart.ranks[static_cast<std::size_t>(rank)];
    if (Status alone = check_lane(schedule, lane, rank, durations); !alone.ok()) return alone;
    for (const TimedAction& each : lane) {
      Status fed = check_origins(schedule, times, each, rank, durations);
      if (!fed.ok()) return fed;
    }
  }
  return {};
}

bool accumulates_in_order(const PipelineSchedule& schedule) {
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::vector<int> last(static_cast<std::size_t>(schedule.chunks_per_rank), -1);
    for (const Action& action : actions) {
      if (action.kind != Action::backward && action.kind != Action::backward_weight) continue;
      int& before = last[static_cast<std::size_t>(action.chunk)];
      if (action.micro_batch <= before) return false;
      before = action.micro_batch;
    }
  }
  return true;
}

}  // namespace tutti::training
