// pipeline_schedule.cc: what depends on what, and an order in which everything can be done.
#include "training/plan/pipeline_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "training/tensor/check.hpp"

namespace tutti::training {
PipelineSchedule PipelineChart::schedule() const {
  PipelineSchedule made{name, chunks_per_rank, micro_batches, {}};
  for (const std::vector<TimedAction>& timed : ranks) {
    std::vector<Action>& actions = made.ranks.emplace_back();
    for (const TimedAction& each : timed) actions.push_back(each.action);
  }
  return made;
}

std::int64_t PipelineChart::makespan() const {
  std::int64_t last = 0;
  for (const std::vector<TimedAction>& actions : ranks)
    for (const TimedAction& each : actions) last = std::max(last, each.end);
  return last;
}

char letter(Action::Kind kind) {
  switch (kind) {
    case Action::forward:
      return 'F';
    case Action::backward:
      return 'B';
    case Action::backward_input:
      return 'I';
    case Action::backward_weight:
      return 'W';
  }
  return '?';
}

std::string to_string(const PipelineSchedule& schedule, int rank, const Action& action) {
  return fmt::format("{}{}{}", schedule.stage_of(rank, action.chunk), letter(action.kind),
                     action.micro_batch);
}

std::optional<Dependency> dependency(Action::Kind kind, int stage, int stages) {
  if (is_forward(kind)) {
    if (stage == 0) return std::nullopt;
    return Dependency{true, stage - 1};
  }
  if (kind == Action::backward_weight) return Dependency{false, stage};
  // The last stage turns around by itself.
  if (stage == stages - 1) return Dependency{true, stage};
  return Dependency{false, stage + 1};
}

std::vector<std::size_t> play(const PipelineSchedule& schedule,
                              const std::function<void(int rank, std::size_t index)>& visit) {
  DependencyTable<char> done(schedule);
  std::vector<std::size_t> position(schedule.ranks.size(), 0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (int rank = 0; rank < schedule.rank_count(); ++rank) {
      const std::vector<Action>& actions = schedule.ranks[static_cast<std::size_t>(rank)];
      std::size_t& at = position[static_cast<std::size_t>(rank)];
      for (; at < actions.size(); ++at) {
        const Action& action = actions[at];
        TRAINING_CHECK(action.chunk >= 0 && action.chunk < schedule.chunks_per_rank &&
                           action.micro_batch >= 0 && action.micro_batch < schedule.micro_batches,
                       "play() is given actions within their ranges");
        const int stage = schedule.stage_of(rank, action.chunk);
        const auto need = dependency(action.kind, stage, schedule.stages());
        if (need && !done.of(*need, action.micro_batch)) break;
        visit(rank, at);
        if (action.kind != Action::backward_weight)
          done.of({is_forward(action.kind), stage}, action.micro_batch) = 1;
        moved = true;
      }
    }
  }
  return position;
}

}  // namespace tutti::training
