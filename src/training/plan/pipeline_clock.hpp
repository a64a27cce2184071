// pipeline_clock.hpp: how long a schedule takes when every action takes a known time, how much of
// that the ranks are idle, and how many activations they keep.
//
// Time is counted in integers, so that what theory says can be compared exactly. Knows nothing of
// real clocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "training/plan/pipeline_schedule.hpp"
#include "training/plan/pipeline_validator.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// When each action starts if ranks do their actions in order, each as soon as it can.
// Errors  invalid_argument for a schedule that validate() refuses, or durations that are negative
//         or so long that times overflow.
Result<PipelineChart> run_clock(const PipelineSchedule& schedule, const Durations& durations);

// What a chart amounts to.
struct PipelineFigures {
  std::int64_t makespan = 0;
  std::vector<std::int64_t> work;  // of each rank: when it is not idle
  std::vector<std::int64_t> live;  // of each rank: peak_live()
  std::int64_t total_work = 0;     // of all ranks

  // The share of the ranks' time in which they work. 1 for a chart without time.
  double efficiency() const;
  double bubble_fraction() const { return 1 - efficiency(); }
  // Idle time by working time, as papers give it: (p - 1) / m for GPipe.
  double bubble_overhead() const { return 1 / efficiency() - 1; }
};

PipelineFigures figures_of(const PipelineChart& chart);

// The most activations that a rank with these actions keeps at once: those of a chunk and
// micro-batch from its forward until the last of its backwards is over.
std::int64_t peak_live(std::span<const Action> actions);
// The same where those of chunk c are weights[c].
double peak_live(std::span<const Action> actions, std::span<const double> weights);

}  // namespace tutti::training
