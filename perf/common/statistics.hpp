// statistics.hpp: numbers about a list of times. Knows nothing of what was timed.
#pragma once

#include <span>

namespace tutti::perf {

// Units: those of the samples, but cv_percent.
struct Statistics {
  double min = 0, max = 0, mean = 0;
  double p50 = 0, p95 = 0, p99 = 0;  // p50 is the upper median; others the nearest sample above
  double deviation = 0;              // of the population
  double cv_percent = 0;             // deviation in percent of the mean; 0 when the mean is 0
};

// Requires  samples is not empty.
Statistics summarize(std::span<const double> samples);

}  // namespace tutti::perf
