// progress.hpp: how a run looks to whoever watches it: on a terminal one line that is written anew,
// elsewhere a plain line now and then.
//
// Knows nothing of how the numbers came about (metrics.hpp). One rank shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "training/report/metrics.hpp"

namespace tutti::training {

// "step 120/1000  loss 2.3456  lr 3.00e-04  norm 0.512  12.3k tok/s  MFU 41.2%  comm 3.1%  ETA 2
// min 05 s", where comm is the share of exposed communication. Drops fields from the end that do
// not fit in `columns`. `steps` 0: how long the run lasts is not known, and there is no ETA.
std::string format_progress(const StepMetrics& metrics, std::int64_t steps, double seconds_left,
                            std::size_t columns);

// How long the rest will take, from the steps so far, of which the last ones count most.
class RemainingTime {
 public:
  void add(double step_seconds);
  double seconds(std::int64_t steps_left) const;  // not a number before the first step

 private:
  double mean_ = 0;    // of steps' seconds, each step's weight 0.9 of the next one's
  double weight_ = 0;  // of all steps so far; tends to 1
};

struct ProgressOptions {
  std::int64_t steps = 0;  // of the whole run
  std::int64_t every = 1;  // steps between plain lines; a terminal shows each step
  bool terminal = false;   // one line, written anew
  std::size_t columns = 200;
};

// For a stream as it is: whether it is a terminal, and how wide. Others are as wide as needed.
ProgressOptions progress_options(std::FILE* stream, std::int64_t steps, std::int64_t every);

// Threading  one thread at a time. Lifetime  the stream outlives it; finish() or the end of it
// leaves the cursor on a new line.
class Progress {
 public:
  Progress(std::FILE* stream, const ProgressOptions& options)
      : stream_(stream), options_(options) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Steps are counted from 0. The first, the last and every `every`th get a plain line.
  void update(const StepMetrics& metrics);
  // A line of its own: "saved checkpoint ...".
  void note(const std::string& text);
  void finish();

 private:
  std::FILE* stream_;
  ProgressOptions options_;
  RemainingTime remaining_;
  bool any_ = false;   // whether a step was shown
  bool open_ = false;  // whether the cursor is in the line that is written anew
};

}  // namespace tutti::training
