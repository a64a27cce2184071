// quickest_way_test.cc: what store_choice_test.cc does not ask: times that are told late, as those
// of calls are whose way was settled a call before.
#include "runtime/quickest_way.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>

namespace tutti::runtime {
namespace {

// How many of so many goes took the second way; each time is told `late` goes later.
int second(QuickestWay& ways, const std::array<double, 2>& times, int goes, std::size_t late) {
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

TEST(QuickestWay, KeepTheQuickerOneThoughTimesAreToldLate) {
  for (const std::size_t late : {0U, 1U, 3U}) {
    QuickestWay first;
    second(first, {1, 2}, 20, late);
    EXPECT_LE(second(first, {1, 2}, 1000, late), 40) << late;
    QuickestWay other;
    second(other, {2, 1}, 20, late);
    EXPECT_GE(second(other, {2, 1}, 1000, late), 960) << late;
  }
}

TEST(QuickestWay, AreTriedInARowOrByTurns) {
  const auto tries = [](QuickestWay ways) {
    std::string order;
    for (int i = 0; i < 6; ++i) {
      const std::size_t way = ways.next();
      ways.took(way, 1);
      order += std::to_string(way);
    }
    return order;
  };
  EXPECT_EQ(tries(QuickestWay()), "000111");
  EXPECT_EQ(tries(QuickestWay({.row_begins = 1})), "111000");
  EXPECT_EQ(tries(QuickestWay({.first_tries = QuickestWay::FirstTries::by_turns})), "010101");
}

// All were gone just now: those that are not the best can wait.
TEST(QuickestWay, TheBestIsGoneOnceAllWereTried) {
  for (const int at_a_time : {1, 4}) {
    QuickestWay ways({.at_a_time = at_a_time});
    const int tries = at_a_time == 1 ? 6 : 8;
    for (int i = 0; i < tries + 8; ++i) {
      const std::size_t way = ways.next();
      EXPECT_TRUE(i < tries || way == 0) << i;
      ways.took(way, way == 0 ? 1 : 2);
    }
  }
}

// The clock costs as much as a few dozen instructions.
TEST(QuickestWay, AreTimedWhenTriedAndNowAndThen) {
  QuickestWay ways;
  int of_best = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::size_t way = ways.next();
    const bool tried = i < 6 || way == 1;
    EXPECT_TRUE(!tried || ways.wants_time()) << i;
    of_best += !tried && ways.wants_time() ? 1 : 0;
    if (ways.wants_time()) ways.took(way, way == 0 ? 1 : 2);
  }
  EXPECT_GE(of_best, 480);
  EXPECT_LE(of_best, 520);
}

// Of which the second one takes five times as long for the first times after the other one has been
// gone, and then `warm`, where the first one takes 10.
class ColdSecondWay {
 public:
  ColdSecondWay(const QuickestWay::Manner& manner, std::size_t late) : ways_(manner), late_(late) {}

  // How many of so many goes took it.
  int second(int goes, double warm) {
    int count = 0;
    for (int i = 0; i < goes; ++i) {
      under_way_.push_back(ways_.next());
      count += static_cast<int>(under_way_.back());
      if (under_way_.size() <= late_) continue;
      const std::size_t told = under_way_.front();
      under_way_.pop_front();
      cold_ = told == 0 ? 4 : std::max(cold_ - 1, 0);
      ways_.took(told, told == 0 ? 10 : cold_ > 0 ? 50 : warm);
    }
    return count;
  }

 private:
  QuickestWay ways_;
  std::size_t late_;
  std::deque<std::size_t> under_way_;
  int cold_ = 4;
};

TEST(QuickestWay, MayBeGoneSeveralTimesBeforeTheyAreJudged) {
  for (const std::size_t late : {0U, 1U}) {
    ColdSecondWay patient({.at_a_time = 8}, late);
    patient.second(200, 20);
    EXPECT_LE(patient.second(1000, 20), 200) << late;
    patient.second(10'000, 5);  // it is the quicker one now, once it is gone again and again
    EXPECT_GE(patient.second(1000, 5), 900) << late;
    ColdSecondWay hasty({}, late);
    hasty.second(10'000, 5);
    EXPECT_LE(hasty.second(1000, 5), 200) << late;
  }
}

// The more times at a time, the longer between them: the share of tries is the same.
TEST(QuickestWay, TriesAreAsRareHoweverLongTheyAre) {
  for (const int times : {1, 8}) {
    QuickestWay ways({.at_a_time = times});
    second(ways, {10, 11}, 60'000, 0);
    EXPECT_LE(second(ways, {10, 11}, 40'000, 0), 100) << times;
  }
}

// Nor is a try that was disturbed believed, or one of which some times are never told waited for.
TEST(QuickestWay, SeveralTimesAreJudgedTogether) {
  QuickestWay ways({.at_a_time = 4});
  second(ways, {10, 11}, 8, 0);
  int tries = 0;
  for (int i = 0; i < 400; ++i) {
    const std::size_t way = ways.next();
    tries += static_cast<int>(way);
    if (way == 0 || tries % 4 != 3) ways.took(way, way == 0 ? 10 : tries % 4 == 2 ? 500 : 11);
  }
  EXPECT_GE(tries, 16);
  EXPECT_LE(tries, 160);
  EXPECT_LE(second(ways, {10, 11}, 1000, 0), 100);
}

TEST(QuickestWay, TurnWhenTimesDo) {
  for (const std::size_t late : {0U, 1U}) {
    QuickestWay ways;
    second(ways, {1, 2}, 3000, late);
    EXPECT_GE(second(ways, {4, 2}, 200, late), 150) << late;
    EXPECT_LE(second(ways, {4, 8}, 200, late), 50) << late;
  }
}

// One that was disturbed when it was tried is still known to be about as good as it was.
TEST(QuickestWay, ADisturbedTryIsNotBelieved) {
  QuickestWay ways;
  second(ways, {10, 11}, 6, 0);
  while (ways.next() == 0) ways.took(0, 10);
  ways.took(1, 1000);
  for (int i = 0; i < 7; ++i) {
    const std::size_t way = ways.next();
    ways.took(way, way == 0 ? 100 : 11);
  }
  EXPECT_EQ(ways.next(), 1U) << "before it is tried again";
}

TEST(QuickestWay, ATimeThatIsNeverToldIsNotWaitedFor) {
  QuickestWay ways;
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
