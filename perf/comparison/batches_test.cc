// batches_test.cc: which batches count, and what a call in one of them has taken.
#include "perf/comparison/batches.hpp"

#include <gtest/gtest.h>

namespace tutti::comparison {
namespace {

constexpr Nanoseconds kQuiet = 5000;

// As many batches of ten calls as there are prices; the n-th call adds n + 1.
std::vector<Batch> priced(const std::vector<Nanoseconds>& prices) {
  std::vector<Batch> batches;
  for (const Nanoseconds price : prices) {
    const auto added = static_cast<Nanoseconds>(batches.size() + 1);
    batches.push_back({700 + 10 * added, 700, price});
  }
  return batches;
}

struct Taken {
  std::size_t quiet;
  std::vector<Nanoseconds> times;
};

Taken taken(const std::vector<Batch>& batches) {
  Taken result;
  result.quiet = take_quiet(batches, 10, kQuiet, result.times);
  return result;
}

TEST(Batches, ACallTakesWhatItAddsToTheOwnersWork) {
  EXPECT_EQ(taken(priced({1, 1})).times, (std::vector<Nanoseconds>{1, 2}));
}

TEST(Batches, WithEnoughQuietOnesTheOthersAreLeftOut) {
  const Taken found = taken(priced({500, 5000, 5001, 500, 90000, 500, 500}));
  EXPECT_EQ(found.quiet, kEnoughQuiet);
  EXPECT_EQ(found.times, (std::vector<Nanoseconds>{1, 2, 4, 6, 7}));
}

TEST(Batches, WithTooFewQuietOnesAllCount) {
  const Taken found = taken(priced({500, 5001, 500, 90000, 500, 500}));
  EXPECT_EQ(found.quiet, kEnoughQuiet - 1);
  EXPECT_EQ(found.times, (std::vector<Nanoseconds>{1, 2, 3, 4, 5, 6}));
}

// A stall in the loop without calls must leave neither a negative time nor none.
TEST(Batches, NoCallTakesLessThanTheClockTells) {
  std::vector<Nanoseconds> times;
  EXPECT_EQ(take_quiet({{700, 900, 1}, {700, 700, 1}}, 10, kQuiet, times), 2U);
  EXPECT_EQ(times, (std::vector<Nanoseconds>{1, 1}));
}

TEST(Batches, NoneAreNoTimes) {
  const Taken found = taken({});
  EXPECT_EQ(found.quiet, 0U);
  EXPECT_TRUE(found.times.empty());
}

}  // namespace
}  // namespace tutti::comparison
