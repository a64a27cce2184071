// reports.hpp: all that a run tells of its steps, in one place: the progress line, metrics.jsonl,
// TensorBoard's file, each rank's trace, and the table of memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "training/engine/engine.hpp"
#include "training/report/metrics.hpp"
#include "training/report/progress.hpp"
#include "training/report/tensorboard.hpp"
#include "training/report/trace.hpp"
#include "training/trainer/run_config.hpp"

namespace tutti::training {

// Of one rank; only rank 0's shows and writes metrics. Traces are all ranks'.
class Reports {
 public:
  // `first_step`: that the run begins, or goes on, with; what was written of later ones is removed.
  static Result<std::unique_ptr<Reports>> make(const RunConfig& run, Engine& engine,
                                               std::int64_t first_step);

  ~Reports();  // the engine's timeline no longer tells it

  Status step(const StepMetrics& metrics);
  void note(const std::string& text);

  // What the ranks' memory went to, so far. Collective over the world.
  Status memory();

  // Writes the trace, one file for all ranks, and ends the progress line. Collective.
  Status finish();

 private:
  Reports(const RunConfig& run, Engine& engine);

  const RunConfig& run_;
  Engine& engine_;
  bool shows_;
  std::unique_ptr<Progress> progress_;
  std::optional<MetricsWriter> metrics_;
  std::optional<EventWriter> events_;
  std::unique_ptr<Trace> trace_;
};

}  // namespace tutti::training
