// The formats of the lines; tests hold them letter by letter.
#include "perf/common/table.hpp"

#include <fmt/printf.h>

#include <cmath>
#include <ctime>
#include <span>

namespace tutti::perf {
namespace {

// The columns that both header lines share; then one half twice, then the time of day.
constexpr const char* kShapeColumns = "# %10s  %12s  %8s  %6s  %6s";
constexpr const char* kHalfColumns = "  %7s  %6s  %6s  %6s";
constexpr const char* kFloorColumns = "  %7s  %6s";
constexpr const char* kIterationColumns = "  %7s  %7s  %7s  %7s";

std::string blocking_text(Blocking blocking) {
  switch (blocking) {
    case Blocking::none:
      return "";
    case Blocking::every_operation:
      return "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n";
    case Blocking::every_operation_alone:
      return "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n";
    case Blocking::every_iteration:
      break;
  }
  return "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes "
         "barrier \n";
}

std::string floor_text(const std::optional<double>& floor_us, const Half* half) {
  if (!floor_us) return "";
  const std::string share =
      half == nullptr ? "N/A" : float_text(floor_percent(*floor_us, *half), 6);
  return fmt::sprintf(kFloorColumns, float_text(*floor_us, 7), share);
}

std::string half_text(const Half& half, const Options& options) {
  std::string text = fmt::sprintf("  %7s  %6s  %6s", float_text(half.time_us, 7),
                                  float_text(half.algbw, 6), float_text(half.busbw, 6));
  text += half.wrong ? fmt::sprintf("  %6g", static_cast<double>(*half.wrong)) : "    N/A";
  if (options.per_iteration) {
    const Statistics statistics = iteration_statistics(half, options);
    text += fmt::sprintf(kIterationColumns, float_text(statistics.min, 7),
                         float_text(statistics.max, 7), float_text(statistics.p99, 7),
                         float_text(statistics.cv_percent, 7));
  }
  return text;
}

// What stands where a collective has no in-place form.
std::string no_half_text(const Options& options) {
  std::string text = fmt::sprintf("  %7s  %6s  %6s    N/A", "N/A", "N/A", "N/A");
  if (options.per_iteration) text += fmt::sprintf(kIterationColumns, "N/A", "N/A", "N/A", "N/A");
  return text;
}

}  // namespace

std::string Device::address() const {
  return fmt::sprintf("%04x:%02x:%02x", package, numa_node, core_in_package);
}

std::string header_text(const std::string& tool, const Options& options,
                        const std::vector<Device>& devices) {
  const bool factor = options.step_factor > 1;
  std::string text =
      fmt::sprintf("# tutti-tests version %s (nccl-tests format 2.19.6)\n", TUTTI_PERF_VERSION);
  text += fmt::sprintf("# Collective test starting: %s\n", tool);
  text += fmt::sprintf(
      "# nThread %d nGpus %d minBytes %ld maxBytes %ld step: %ld(%s) warmup iters: %d iters: %d "
      "agg iters: %d validation: %d graph: %d unalign: %d\n",
      options.threads, 1, options.min_bytes, options.max_bytes,
      factor ? options.step_factor : options.step_bytes, factor ? "factor" : "bytes",
      options.warmup, options.iterations, options.aggregated, options.checks, 0, options.unalign);
  text += blocking_text(options.blocking);
  text += "#\n# Using devices\n";
  for (const Device& device : devices) {
    text += fmt::sprintf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", device.rank,
                         device.group, device.pid, device.host, device.core, device.address(),
                         device.model);
  }
  return text;
}

std::string columns_text(const Options& options) {
  const int time_width = options.timestamps ? 19 : 0;
  const auto line = [&](auto shape, auto time, auto unit, auto wrong, auto iterations, auto floor,
                        auto tail) {
    const std::string half =
        fmt::sprintf(kHalfColumns, time, unit[0], unit[1], wrong) +
        (options.per_iteration ? fmt::sprintf(kIterationColumns, iterations[0], iterations[1],
                                              iterations[2], iterations[3])
                               : "") +
        (options.floor ? fmt::sprintf(kFloorColumns, floor[0], floor[1]) : "");
    return fmt::sprintf(kShapeColumns, shape[0], shape[1], shape[2], shape[3], shape[4]) + half +
           half + fmt::sprintf(" %*s\n", time_width, options.timestamps ? tail : "");
  };
  using Words = const char* const[5];
  constexpr Words shape = {"size", "count", "type", "redop", "root"};
  constexpr Words shape_units = {"(B)", "(elements)", "", "", ""};
  constexpr Words bandwidth = {"algbw", "busbw"}, bandwidth_units = {"(GB/s)", "(GB/s)"};
  constexpr Words iterations = {"i_min", "i_max", "i_p99", "i_cv%"};
  constexpr Words iteration_units = {"(us)", "(us)", "(us)", "(%)"};
  constexpr Words floor = {"floor", "share"}, floor_units = {"(us)", "(%)"};
  const std::string titles =
      options.per_iteration ? "              out-of-place (+ per-iteration)"
                              "                                in-place (+ per-iteration)\n"
      : options.floor       ? "               out-of-place (+ floor)"
                              "                              in-place (+ floor)\n"
                            : "           out-of-place                       in-place          \n";
  return "#\n" + fmt::sprintf(kShapeColumns, "", "", "", "", "") + titles +
         line(shape, options.cpu_time ? "cputime" : "time", bandwidth, "#wrong", iterations, floor,
              "timestamp") +
         line(shape_units, "(us)", bandwidth_units, "", iteration_units, floor_units,
              "%Y-%m-%d %H:%M:%S");
}

std::string row_text(const Row& row, const Options& options) {
  std::string text =
      fmt::sprintf("%12li  %12li  %8s  %6s  %6d", row.bytes, row.count, row.type, row.op, row.root);
  text += half_text(row.out_of_place, options) + floor_text(row.floor_us, &row.out_of_place);
  text += row.in_place ? half_text(*row.in_place, options) : no_half_text(options);
  text += floor_text(row.floor_us, row.in_place ? &*row.in_place : nullptr);
  if (options.timestamps) text += fmt::sprintf("%21s", row.time_of_day);
  return text + "\n";
}

std::string summary_text(const std::string& tool, const Summary& summary) {
  const char* const verdict = summary.fast_enough ? (*summary.fast_enough ? "OK" : "FAILED") : "";
  std::string text = fmt::sprintf("# %-20s : %d %s\n", "Out of bounds values", summary.wrong,
                                  summary.wrong == 0 ? "OK" : "FAILED");
  text += fmt::sprintf("# %-20s : %g %s\n", "Avg bus bandwidth", summary.busbw, verdict);
  text += fmt::sprintf("#\n# Collective test concluded: %s\n", tool);
  if (summary.memory) {
    const Memory& memory = *summary.memory;
    text +=
        fmt::sprintf("# %-20s : Initialization %s | User-Allocated %s | Collective %s | Total %s\n",
                     "Memory usage", memory_text(memory.initialization),
                     memory_text(memory.buffers), memory_text(memory.collective),
                     memory_text(memory.initialization + memory.buffers + memory.collective));
  }
  return text + "#\n";
}

std::string float_text(double value, int width) {
  for (const char* format : {"%*.2f", "%*.1f", "%*.0f"}) {
    const std::string text = fmt::sprintf(format, width, value);
    if (text.size() <= static_cast<std::size_t>(width)) return text;
  }
  return fmt::sprintf(width >= 7 ? "%*.1e" : "%*.0e", width, value);
}

std::string memory_text(std::int64_t bytes) {
  double amount = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* larger : {"KB", "MB", "GB"}) {
    if (std::fabs(amount) < 1024) break;
    amount /= 1024;
    unit = larger;
  }
  const int decimals = std::fabs(amount) < 10 ? 2 : std::fabs(amount) < 100 ? 1 : 0;
  return fmt::sprintf("%.*f %s", decimals, amount, unit);
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local));
}

double floor_percent(double floor_us, const Half& half) {
  return half.time_us > 0 ? 100 * floor_us / half.time_us : 0;
}

Statistics iteration_statistics(const Half& half, const Options& options) {
  return summarize(
      std::span(half.iterations_us).subspan(static_cast<std::size_t>(options.skip_iterations)));
}

}  // namespace tutti::perf
