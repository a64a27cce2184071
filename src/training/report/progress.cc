// progress.cc: see progress.hpp.
#include "training/report/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <limits>

#include "training/report/text.hpp"

namespace tutti::training {
namespace {

constexpr double kRetained = 0.9;  // of the mean, when a step is added
constexpr std::size_t kColumns = 200;

// Whoever watches may go away; the run goes on, so failures are nothing to report.
void print(std::FILE* stream, const std::string& text) {
  std::fputs(text.c_str(), stream);
  std::fflush(stream);
}

}  // namespace

std::string format_progress(const StepMetrics& metrics, std::int64_t steps, double seconds_left,
                            std::size_t columns) {
  const std::array<std::string, 8> fields = {
      steps > 0 ? fmt::format("step {}/{}", metrics.step + 1, steps)
                : fmt::format("step {}", metrics.step + 1),
      fmt::format("loss {:.4f}", metrics.loss),
      fmt::format("lr {:.2e}", metrics.learning_rate),
      fmt::format("norm {:.3g}", metrics.gradient_norm),
      fmt::format("{} tok/s", format_count(metrics.tokens_per_second)),
      fmt::format("MFU {}", format_share(metrics.mfu)),
      fmt::format("comm {}", format_share(metrics.exposed_communication)),
      steps > metrics.step + 1 ? fmt::format("ETA {}", format_duration(seconds_left))
                               : std::string(),
  };
  std::string line = fields[0];
  for (std::size_t i = 1; i < fields.size() && !fields[i].empty(); ++i) {
    if (line.size() + 2 + fields[i].size() > columns) break;
    line += "  " + fields[i];
  }
  return line;
}

void RemainingTime::add(double step_seconds) {
  mean_ = kRetained * mean_ + (1 - kRetained) * step_seconds;
  weight_ = kRetained * weight_ + (1 - kRetained);
}

double RemainingTime::seconds(std::int64_t steps_left) const {
  if (weight_ == 0) return std::numeric_limits<double>::quiet_NaN();
  return mean_ / weight_ * static_cast<double>(steps_left);
}

ProgressOptions progress_options(std::FILE* stream, std::int64_t steps, std::int64_t every) {
  ProgressOptions options{steps, every, ::isatty(::fileno(stream)) == 1, kColumns};
  winsize size = {};
  if (options.terminal && ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
    options.columns = size.ws_col - 1u;  // a full line would move the cursor to the next
  return options;
}

void Progress::update(const StepMetrics& metrics) {
  remaining_.add(metrics.seconds);
  const std::int64_t done = metrics.step + 1;
  const bool due =
      !any_ || options_.every <= 1 || done % options_.every == 0 || done == options_.steps;
  any_ = true;
  if (!options_.terminal && !due) return;
  const std::string line = format_progress(
      metrics, options_.steps, remaining_.seconds(options_.steps - done), options_.columns);
  if (options_.terminal)
    print(stream_, fmt::format("\r{}\x1b[K", line));  // then clear what was longer
  else
    print(stream_, line + "\n");
  open_ = options_.terminal;
}

void Progress::note(const std::string& text) {
  finish();
  print(stream_, text + "\n");
}

void Progress::finish() {
  if (!open_) return;
  print(stream_, "\n");
  open_ = false;
}

}  // namespace tutti::training
