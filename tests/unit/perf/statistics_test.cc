// The definitions of the percentiles and the spread, on lists whose answers are known.
#include "perf/common/statistics.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tutti::perf {
namespace {

TEST(Statistics, OfAHundred) {
  std::vector<double> samples(100);
  std::iota(samples.rbegin(), samples.rend(), 1.0);  // 100 .. 1
  const Statistics statistics = summarize(samples);
  EXPECT_EQ(statistics.min, 1);
  EXPECT_EQ(statistics.max, 100);
  EXPECT_EQ(statistics.mean, 50.5);
  EXPECT_EQ(statistics.p50, 51);
  EXPECT_EQ(statistics.p95, 95);
  EXPECT_EQ(statistics.p99, 99);
  EXPECT_NEAR(statistics.deviation, 28.866, 0.001);
  EXPECT_NEAR(statistics.cv_percent, 57.161, 0.001);
}

TEST(Statistics, OfOne) {
  const double samples[] = {4};
  const Statistics statistics = summarize(samples);
  EXPECT_EQ(statistics.p50, 4);
  EXPECT_EQ(statistics.p99, 4);
  EXPECT_EQ(statistics.cv_percent, 0);
}

TEST(Statistics, OfZerosHasNoQuotient) {
  const double samples[] = {0, 0};
  EXPECT_EQ(summarize(samples).cv_percent, 0);
}

}  // namespace
}  // namespace tutti::perf
