// table.hpp: the text that the perf tools print, column by column as nccl-tests 2.19.6 prints it,
// so that the scripts that people have read it.
//
// Pure: values in, text out. Knows nothing of ranks, clocks or where the text goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perf/common/options.hpp"
#include "perf/common/statistics.hpp"

namespace tutti::perf {

// Where one rank runs. In nccl-tests' device column: the core, and in its PCI address [package:NUMA
// node:core within the package].
struct Device {
  int rank = 0;
  int group = 0;
  int pid = 0;
  std::string host;
  int core = 0;
  int package = 0;
  int numa_node = 0;
  int core_in_package = 0;
  std::string model;

  // "0000:00:01"
  std::string address() const;
};

// Half a line: out of place, or in place.
struct Half {
  double time_us = 0;
  double algbw = 0;                   // GB/s
  double busbw = 0;                   // GB/s
  std::optional<std::int64_t> wrong;  // none: not checked
  std::vector<double> iterations_us;  // with -I: each iteration, the slowest rank's
};

struct Row {
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string type;
  std::string op = "none";
  int root = -1;
  Half out_of_place;
  std::optional<Half> in_place;    // none: the collective has no such form
  std::optional<double> floor_us;  // with --floor: the lower bound of the time
  std::string time_of_day;         // with -S
};

// Units: bytes, of all ranks together.
struct Memory {
  std::int64_t initialization = 0;
  std::int64_t buffers = 0;
  std::int64_t collective = 0;
};

// What the whole run came to.
struct Summary {
  std::int64_t wrong = 0;
  double busbw = 0;                 // mean over all halves
  std::optional<bool> fast_enough;  // none: no bandwidth was asked for
  std::optional<Memory> memory;
};

// Everything above the table.
std::string header_text(const std::string& tool, const Options& options,
                        const std::vector<Device>& devices);
std::string columns_text(const Options& options);
std::string row_text(const Row& row, const Options& options);
std::string summary_text(const std::string& tool, const Summary& summary);

// A number in at most `width` characters: as many of two decimals as fit, else an exponent.
std::string float_text(double value, int width);
// "1.50 MB"; binary units.
std::string memory_text(std::int64_t bytes);
// "2024-05-06 07:08:09" in local time, now.
std::string time_of_day();

// How much of the lower bound was reached, in percent: 100 is the best that there is.
double floor_percent(double floor_us, const Half& half);

// What of `half.iterations_us` counts, with -K left out.
Statistics iteration_statistics(const Half& half, const Options& options);

}  // namespace tutti::perf
