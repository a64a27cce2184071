// pipeline_runner.hpp: carries out this rank's part of a pipeline schedule: forward and backward of
// its stages, and their messages. Without a pipeline it is the same with one stage and no messages.
//
// Does not know what gradients are summed with, nor what a step does with them; UnitHooks do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "training/model/stage.hpp"
#include "training/parallel/pipeline_links.hpp"
#include "training/parallel/timeline.hpp"
#include "training/plan/pipeline_schedule.hpp"

namespace tutti::training {

// What a micro-batch is made of, and what became of it.
struct MicroBatchData {
  std::vector<std::int32_t> tokens, targets;  // [rows of context]
  double loss_scale = 1;                      // see MicroBatch
};

struct MicroBatchResult {
  Loss loss;                // on the rank with the head
  double balance_loss = 0;  // of the layers here
};

enum class Purpose : unsigned char {
  learn,
  evaluate,  // nothing is kept for backward
};

class PipelineRunner {
 public:
  // `stages` are this rank's, of virtual stages chunk * ranks + rank. `hooks` of each.
  // Lifetime  of what is passed: longer.
  PipelineRunner(int rank, std::vector<Stage*> stages, std::vector<UnitHooks*> hooks,
                 PipelineLinks& links, Context& context, Timeline& timeline);

  // Makes rank `rank`'s actions of the schedule. `data` and the results are by micro-batch.
  // Errors  the first of a message; the hooks' and axes' own are theirs to tell.
  Status run(const PipelineSchedule& schedule, const std::vector<MicroBatchData>& data,
             Purpose purpose, std::vector<MicroBatchResult>& results);

  // Micro-batches in flight at most, of the last run: forward has begun, backward has not ended.
  std::int64_t peak_in_flight() const { return peak_in_flight_; }

 private:
  Status expect(const PipelineSchedule& schedule);
  Status forward(const Action& action, const std::vector<MicroBatchData>& data,
                 MicroBatchResult& result);
  Status backward(const Action& action);
  bool is_first(int chunk) const { return stages_[index(chunk)]->layers().has_embedding; }
  bool is_last(int chunk) const { return stages_[index(chunk)]->layers().has_head; }
  static std::size_t index(int chunk) { return static_cast<std::size_t>(chunk); }

  int rank_;
  int ranks_ = 1;
  std::vector<Stage*> stages_;
  std::vector<UnitHooks*> hooks_;
  PipelineLinks& links_;
  Context& context_;
  Timeline& timeline_;
  Purpose purpose_ = Purpose::learn;
  std::map<MessageKey, MicroBatch> live_;
  std::int64_t peak_in_flight_ = 0;
};

}  // namespace tutti::training
