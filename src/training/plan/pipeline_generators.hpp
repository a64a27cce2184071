// pipeline_generators.hpp: the pipeline schedules that we know by name.
//
// They say only who does what in which order; how long it takes is pipeline_clock.hpp. In all of
// them each stage's backwards, and weight gradients, come in ascending order of micro-batches, so
// that gradients add up in the order of a serial program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "training/plan/pipeline_schedule.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// Requires of all: 1 <= ranks, 1 <= micro_batches, 1 <= chunks.

// One micro-batch at a time, through and back: what a pipeline is without pipelining. 1/ranks of
// the ranks' time is used.
PipelineSchedule naive_schedule(int ranks, int micro_batches);

// All forwards, then all backwards; keeps the activations of all micro-batches.
// Source  Huang et al.: GPipe (2019).
PipelineSchedule gpipe_schedule(int ranks, int micro_batches);

// A backward as soon as there is one; rank r keeps min(ranks - r, micro_batches) activations.
// Source  Narayanan et al.: PipeDream (2019) and Memory-efficient pipeline-parallel DNN training
//         (2021), the variant that flushes.
PipelineSchedule one_f_one_b_schedule(int ranks, int micro_batches);

// 1F1B of ranks * chunks stages; the bubble is 1/chunks of 1F1B's.
// Requires  micro_batches % ranks == 0.
// Source    Narayanan et al.: Efficient large-scale language model training on GPU clusters (2021),
//           section 2.2.2.
PipelineSchedule interleaved_schedule(int ranks, int micro_batches, int chunks);

// 1F1B whose backward is split: rank r puts the weight gradient of each micro-batch off until r
// others have had their input gradients, and fills with it what would be idle at the end. Each rank
// keeps min(ranks, micro_batches) activations, as 1F1B's first rank does. With F, I and W the
// times of the three and W <= F, I, the bubble is (ranks - 1) (F + I - W), and
// (ranks - micro_batches) W more if there are fewer micro-batches than ranks.
// Source  Qi et al.: Zero bubble pipeline parallelism (2023), section 2.
PipelineSchedule zero_bubble_h1_schedule(int ranks, int micro_batches);

// Makes the schedule of that name.
// Errors  invalid_argument for a name that we do not know (with those that we do), counts that are
//         not positive or too large, chunks other than 1 where a schedule has no chunks, and
//         micro-batches that the interleaved one cannot divide.
Result<PipelineSchedule> make_schedule(std::string_view name, int ranks, int micro_batches,
                                       int chunks = 1);

// "naive", "gpipe", "1f1b", "interleaved", "zb-h1".
std::vector<std::string> schedule_names();

}  // namespace tutti::training
