// metrics.hpp: what a step is measured by, and the file that keeps it: one JSON object a line,
// which a resumed run goes on with as if it had never stopped.
//
// Knows nothing of who measures. Progress lines and TensorBoard files say the same (progress.hpp,
// tensorboard.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/files/output_file.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;  // nats per token that counted, over the global batch
  double learning_rate = 0;
  double gradient_norm = 0;          // before clipping
  double tokens_per_second = 0;      // of all ranks
  double mfu = 0;                    // model FLOP utilisation: a share of the declared peak
  double exposed_communication = 0;  // the share of the step in which only communication ran
  double seconds = 0;                // of the step
  std::int64_t tokens = 0;           // since the run began, of all ranks
  // Whatever else: {"validation_loss", 1.4}, {"balance_loss", 0.01}, in the order of writing.
  std::vector<std::pair<std::string, double>> more;
};

// One line, without its end. Numbers read back to the same bits, except that what is no number
// becomes null; "loss_hex" has the loss exactly, that too.
std::string to_json(const StepMetrics& metrics);

// What to_json() wrote. Errors  corrupt_data, naming the key.
Result<StepMetrics> parse_metrics(std::string_view line);

// The lines of a file, in its order; a last line without its end, which a run that died may leave,
// does not count. Errors  system_error; corrupt_data, naming file, line and key.
Result<std::vector<StepMetrics>> read_metrics(const std::string& path);

// Appends to a file. Each line is one write, so a run that dies leaves whole lines but for the
// last.
//
// Threading  one thread at a time.
class MetricsWriter {
 public:
  // Makes the file where it is missing, and cuts off a last line that is not whole.
  static Result<MetricsWriter> open(const std::string& path);

  Status write(const StepMetrics& metrics);

  // Removes the lines of steps after `step`, which a run that resumes there will write again; -1
  // removes all. Requires  steps in rising order, as a run writes them.
  Status truncate_after(std::int64_t step);

 private:
  explicit MetricsWriter(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
};

}  // namespace tutti::training
