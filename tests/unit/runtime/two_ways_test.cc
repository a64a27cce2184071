// two_ways_test.cc: what store_choice_test.cc does not ask: times that are told late, as those of
// calls are whose way was settled a call before.
#include "runtime/two_ways.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>

namespace tutti::runtime {
namespace {

// How many of so many goes took the second way; each time is told `late` goes later.
int second(TwoWays& ways, const std::array<double, 2>& times, int goes, std::size_t late) {
  std::deque<std::size_t> under_way;
  int count = 0;
  for (int i = 0; i < goes; ++i) {
    under_way.push_back(ways.next());
    count += under_way.back() == 1 ? 1 : 0;
    if (under_way.size() <= late) continue;
    ways.took(under_way.front(), times[under_way.front()]);
    under_way.pop_front();
  }
  return count;
}

TEST(TwoWays, KeepTheQuickerOneThoughTimesAreToldLate) {
  for (const std::size_t late : {0U, 1U, 3U}) {
    TwoWays first;
    second(first, {1, 2}, 20, late);
    EXPECT_LE(second(first, {1, 2}, 1000, late), 40) << late;
    TwoWays other;
    second(other, {2, 1}, 20, late);
    EXPECT_GE(second(other, {2, 1}, 1000, late), 960) << late;
  }
}

TEST(TwoWays, AreTriedInARowOrByTurns) {
  const auto tries = [](TwoWays ways) {
    std::string order;
    for (int i = 0; i < 6; ++i) {
      const std::size_t way = ways.next();
      ways.took(way, 1);
      order += std::to_string(way);
    }
    return order;
  };
  EXPECT_EQ(tries(TwoWays()), "000111");
  EXPECT_EQ(tries(TwoWays(1, TwoWays::FirstTries::by_turns)), "010101");
}

TEST(TwoWays, TurnWhenTimesDo) {
  for (const std::size_t late : {0U, 1U}) {
    TwoWays ways;
    second(ways, {1, 2}, 3000, late);
    EXPECT_GE(second(ways, {4, 2}, 200, late), 150) << late;
    EXPECT_LE(second(ways, {4, 8}, 200, late), 50) << late;
  }
}

// One that was disturbed when it was tried is still known to be about as good as it was.
TEST(TwoWays, ADisturbedTryIsNotBelieved) {
  TwoWays ways;
  second(ways, {10, 11}, 6, 0);
  while (ways.next() == 0) ways.took(0, 10);
  ways.took(1, 1000);
  for (int i = 0; i < 7; ++i) {
    const std::size_t way = ways.next();
    ways.took(way, way == 0 ? 100 : 11);
  }
  EXPECT_EQ(ways.next(), 1U) << "before it is tried again";
}

TEST(TwoWays, ATimeThatIsNeverToldIsNotWaitedFor) {
  TwoWays ways;
  for (int i = 0; i < 10; ++i) ways.next();
  EXPECT_EQ(second(ways, {1, 2}, 3, 0), 0);
  EXPECT_EQ(second(ways, {1, 2}, 3, 0), 3);
  // Nor is one tried again and again for it.
  int tries = 0;
  for (int i = 0; i < 160; ++i) {
    const std::size_t way = ways.next();
    if (way == 0) ways.took(way, 1);
    tries += way == 1 ? 1 : 0;
  }
  EXPECT_GE(tries, 10);
  EXPECT_LE(tries, 20);
}

}  // namespace
}  // namespace tutti::runtime
