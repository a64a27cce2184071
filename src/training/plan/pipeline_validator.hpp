// pipeline_validator.hpp: whether a schedule, made by us or read from a file, can be run and does
// all the work once; and whether times that somebody claims for it are possible.
//
// Knows nothing of how good a schedule is; that is pipeline_clock.hpp.
#pragma once

#include <cstdint>

#include "training/plan/pipeline_schedule.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// How long actions take, in any unit.
struct Durations {
  std::int64_t forward = 1;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  std::int64_t message = 0;  // from the end of an action to where another rank can use its result

  std::int64_t of(Action::Kind kind) const;

  friend bool operator==(const Durations&, const Durations&) = default;
};

// Every stage has one forward of each micro-batch, and either one backward or one backward of input
// and, later, one of weights; and the ranks, each in its order, come to an end.
// Errors  invalid_argument that names the rank, the action and the rule; of a deadlock, what each
//         rank waits for.
Status validate(const PipelineSchedule& schedule);

// The same, and: actions take what they should, a rank does one at a time, and nothing starts
// before all that it is computed from was there: not only what the rank waits for directly.
// Errors  as above; of times, with both actions and their times.
Status validate(const PipelineChart& chart, const Durations& durations);

// Whether each stage adds to its weights' gradients in ascending order of micro-batches, so that
// sums are those of a serial program, bit by bit.
bool accumulates_in_order(const PipelineSchedule& schedule);

}  // namespace tutti::training
