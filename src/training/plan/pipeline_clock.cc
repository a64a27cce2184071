// pipeline_clock.cc: an action starts when its rank is free and what it needs has arrived.
#include "training/plan/pipeline_clock.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

// With at most 3 x 2^24 actions, no sum of times comes near the end of an int64.
constexpr std::int64_t kLongest = std::int64_t{1} << 32;

Status check_durations(const Durations& durations) {
  for (const std::int64_t each : {durations.forward, durations.backward_input,
                                  durations.backward_weight, durations.message}) {
    if (each < 0 || each > kLongest) {
      return {
          StatusCode::invalid_argument,
          fmt::format("an action or message takes 0 to {} units of time, not {}", kLongest, each)};
    }
  }
  return {};
}

}  // namespace

Result<PipelineChart> run_clock(const PipelineSchedule& schedule, const Durations& durations) {
  if (Status valid = check_durations(durations); !valid.ok()) return valid;
  if (Status valid = validate(schedule); !valid.ok()) return valid;

  PipelineChart chart{schedule.name, schedule.chunks_per_rank, schedule.micro_batches, {}};
  chart.ranks.resize(schedule.ranks.size());
  DependencyTable<std::int64_t> ends(schedule);
  play(schedule, [&](int rank, std::size_t index) {
    const Action& action = schedule.ranks[static_cast<std::size_t>(rank)][index];
    std::vector<TimedAction>& lane = chart.ranks[static_cast<std::size_t>(rank)];
    const int stage = schedule.stage_of(rank, action.chunk);
    std::int64_t start = lane.empty() ? 0 : lane.back().end;
    if (const auto need = dependency(action.kind, stage, schedule.stages())) {
      const bool here = schedule.rank_of_stage(need->stage) == rank;
      const std::int64_t travels = here ? 0 : durations.message;
      start = std::max(start, ends.of(*need, action.micro_batch) + travels);
    }
    const std::int64_t end = start + durations.of(action.kind);
    if (action.kind != Action::backward_weight)
      ends.of({is_forward(action.kind), stage}, action.micro_batch) = end;
    lane.push_back({action, start, end});
  });
  return chart;
}

double PipelineFigures::efficiency() const {
  const double offered = static_cast<double>(makespan) * static_cast<double>(work.size());
  return offered > 0 ? static_cast<double>(total_work) / offered : 1;
}

PipelineFigures figures_of(const PipelineChart& chart) {
  PipelineFigures figures;
  figures.makespan = chart.makespan();
  for (const std::vector<Action>& actions : chart.schedule().ranks)
    figures.live.push_back(peak_live(actions));
  for (const std::vector<TimedAction>& lane : chart.ranks) {
    std::int64_t& work = figures.work.emplace_back(0);
    for (const TimedAction& each : lane) work += each.end - each.start;
    figures.total_work += work;
  }
  return figures;
}

std::int64_t peak_live(std::span<const Action> actions) {
  int chunks = 0;
  for (const Action& action : actions) chunks = std::max(chunks, action.chunk + 1);
  const std::vector<double> ones(static_cast<std::size_t>(chunks), 1);
  return static_cast<std::int64_t>(peak_live(actions, ones));
}

double peak_live(std::span<const Action> actions, std::span<const double> weights) {
  double live = 0;
  double peak = 0;
  for (const Action& action : actions) {
    const auto chunk = static_cast<std::size_t>(action.chunk);
    TRAINING_CHECK(chunk < weights.size(), "a weight for every chunk");
    if (is_forward(action.kind)) live += weights[chunk];
    peak = std::max(peak, live);
    if (action.kind == Action::backward || action.kind == Action::backward_weight)
      live -= weights[chunk];
  }
  return peak;
}

}  // namespace tutti::training
