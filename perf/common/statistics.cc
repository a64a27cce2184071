// Percentiles and spread by sorting a copy.
#include "perf/common/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace tutti::perf {

Statistics summarize(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t count = sorted.size();
  // The smallest sample that is not exceeded by `percent` of all.
  const auto percentile = [&](std::size_t percent) {
    return sorted[(count * percent + 99) / 100 - 1];
  };
  Statistics result;
  result.min = sorted.front();
  result.max = sorted.back();
  result.p50 = sorted[count / 2];
  result.p95 = percentile(95);
  result.p99 = percentile(99);
  result.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(count);
  double squares = 0;
  for (const double sample : sorted) squares += (sample - result.mean) * (sample - result.mean);
  result.deviation = std::sqrt(squares / static_cast<double>(count));
  result.cv_percent = result.mean > 0 ? 100 * result.deviation / result.mean : 0;
  return result;
}

}  // namespace tutti::perf
