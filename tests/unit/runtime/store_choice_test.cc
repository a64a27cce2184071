// Which way stores go, with times that the tests make up.
#include "runtime/store_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::runtime {
namespace {

using kernels::StoreHint;

constexpr std::size_t kBytes = std::size_t{64} << 10;
using Kind = StoreChoice::Kind;

// What storing costs, in ticks a byte.
struct Costs {
  std::uint64_t through = 1;
  std::uint64_t past = 1;
  std::uint64_t by_string = 1'000'000;
  std::uint64_t unclaimed = 1'000'000;
  std::uint64_t paged = 1'000'000;

  std::uint64_t of(StoreHint way) const {
    if (way == StoreHint::unclaimed) return unclaimed;
    if (way == StoreHint::paged) return paged;
    return way == StoreHint::cached ? through : way == StoreHint::streaming ? past : by_string;
  }
};

StoreHint store(StoreChoice& choice, const Costs& costs, std::size_t bytes = kBytes,
                Kind kind = Kind::pushed_copy) {
  const StoreHint way = choice.choose(bytes, kind);
  choice.took(bytes * costs.of(way));
  return way;
}

// How many of so many stores went that way.
int count(StoreHint way, StoreChoice& choice, const Costs& costs, int stores, std::size_t bytes,
          Kind kind) {
  int gone = 0;
  for (int i = 0; i < stores; ++i) gone += store(choice, costs, bytes, kind) == way ? 1 : 0;
  return gone;
}

int past(StoreChoice& choice, const Costs& costs, int stores, std::size_t bytes = kBytes,
         Kind kind = Kind::pushed_copy) {
  return count(StoreHint::streaming, choice, costs, stores, bytes, kind);
}

int by_string(StoreChoice& choice, const Costs& costs, int stores, Kind kind) {
  return count(StoreHint::string, choice, costs, stores, kBytes, kind);
}

TEST(StoreChoice, BeginsThroughTheCachesAndTriesAllWays) {
  for (const Kind kind : {Kind::pushed_copy, Kind::queued_copy, Kind::pushed_sum}) {
    StoreChoice choice;
    EXPECT_EQ(count(StoreHint::cached, choice, {}, 3, kBytes, kind), 3);
    EXPECT_EQ(past(choice, {}, 3, kBytes, kind), 3);
    EXPECT_EQ(by_string(choice, {}, 3, kind), 3);
  }
}

TEST(StoreChoice, OwnBuffersStayInTheCaches) {
  for (const Kind kind : {Kind::own_copy, Kind::fetched_copy, Kind::loaded_copy}) {
    StoreChoice choice;
    EXPECT_EQ(past(choice, {100, 1, 10}, 1000, kBytes, kind), 0);
    EXPECT_GE(by_string(choice, {100, 1, 10}, 1000, kind), 980);
    EXPECT_LE(by_string(choice, {10, 1, 100}, 1000, kind), 30);
  }
}

// Another core's, too, which may go past the caches as well.
TEST(StoreChoice, SumsMayAskForNoLinesAhead) {
  for (const Kind kind : {Kind::own_sum, Kind::loaded_sum, Kind::pushed_sum, Kind::queued_sum}) {
    const auto unclaimed = [&](const Costs& costs) {
      StoreChoice choice;
      return count(StoreHint::unclaimed, choice, costs, 1000, kBytes, kind);
    };
    EXPECT_GE(unclaimed({100, 100, 100, 98}), 960);
    EXPECT_LE(unclaimed({100, 100, 100, 102}), 30) << "not worth it";
  }
  StoreChoice own;
  EXPECT_EQ(past(own, {100, 1, 1, 50}, 1000, kBytes, Kind::own_sum), 0);
  StoreChoice copies;
  EXPECT_EQ(count(StoreHint::unclaimed, copies, {100, 100, 100, 1}, 1000, kBytes, Kind::own_copy),
            0);
}

// And nothing else, which would try it for nothing.
TEST(StoreChoice, WhatIsLoadedMayGoThroughSeveralPagesAtOnce) {
  const auto paged = [&](Kind kind, std::uint64_t cost) {
    StoreChoice choice;
    return count(StoreHint::paged, choice, {100, 100, 100, 100, cost}, 1000, kBytes, kind);
  };
  for (const Kind kind : {Kind::loaded_copy, Kind::loaded_sum}) {
    EXPECT_GE(paged(kind, 93), 960);
    EXPECT_LE(paged(kind, 102), 30) << "not worth it";
    StoreChoice choice;
    EXPECT_EQ(past(choice, {100, 1, 100, 100, 50}, 1000, kBytes, kind), 0);
  }
  for (const Kind kind : {Kind::own_copy, Kind::fetched_copy, Kind::own_sum, Kind::pushed_copy,
                          Kind::pushed_sum, Kind::queued_copy, Kind::queued_sum})
    EXPECT_EQ(paged(kind, 1), 0);
}

TEST(StoreChoice, TheQuickestOfThreeIsKept) {
  for (const Kind kind : {Kind::pushed_copy, Kind::pushed_sum}) {
    StoreChoice choice;
    EXPECT_GE(by_string(choice, {100, 60, 50}, 1000, kind), 960);
    EXPECT_GE(past(choice, {100, 50, 90}, 3000, kBytes, kind), 1500) << "times have changed";
  }
}

// It goes through the caches, where who reads a queue finds it.
TEST(StoreChoice, QueuesAreFilledByStringForLessThanPastTheCaches) {
  StoreChoice choice;
  EXPECT_GE(by_string(choice, {100, 45, 90}, 1000, Kind::queued_copy), 960);
  EXPECT_LE(by_string(choice, {100, 45, 90}, 1000, Kind::queued_sum), 30)
      << "a sum is read once more for it";
  EXPECT_GE(by_string(choice, {100, 45, 70}, 3000, Kind::queued_sum), 1500);
}

TEST(StoreChoice, KeepsTheQuickerWay) {
  StoreChoice through;
  past(through, {1, 4}, 9);
  EXPECT_LE(past(through, {1, 4}, 1000), 10) << "it is tried again now and then";
  StoreChoice beyond;
  past(beyond, {4, 1}, 9);
  EXPECT_GE(past(beyond, {4, 1}, 1000), 990);
}

TEST(StoreChoice, ASmallGainIsNotWorthIt) {
  StoreChoice choice;
  past(choice, {100, 85}, 9);
  EXPECT_LE(past(choice, {100, 85}, 100), 10);
}

// Another core reads a queue at once, so much more must be gained.
TEST(StoreChoice, QueuesStayInTheCachesUnlessStoresThereAreVerySlow) {
  constexpr Kind queued = Kind::queued_copy;
  StoreChoice choice;
  past(choice, {10, 5}, 9, kBytes, queued);
  EXPECT_LE(past(choice, {10, 5}, 100, kBytes, queued), 10);
  EXPECT_GE(past(choice, {10, 5}, 100), 80) << "other kinds are not judged by it";
  StoreChoice slow;
  past(slow, {10, 3}, 9, kBytes, queued);
  EXPECT_GE(past(slow, {10, 3}, 100, kBytes, queued), 90);
}

// A virtual machine's cores may have moved.
TEST(StoreChoice, NoticesThatTimesHaveChanged) {
  StoreChoice choice;
  for (const int stores : {2000, 2100, 2200, 2300, 2400}) {  // wherever it is between two tries
    choice = StoreChoice();
    past(choice, {1, 20}, stores);
    EXPECT_GE(past(choice, {12, 3}, 40), 20) << "the way in use became slow: that is seen at once";
  }
  past(choice, {12, 3}, 2000);
  EXPECT_GE(past(choice, {1, 3}, 2000), 1);
  EXPECT_LE(past(choice, {1, 3}, 100), 10) << "the other one became quick: seen at the next try";
}

TEST(StoreChoice, OneSlowStoreChangesNothing) {
  StoreChoice choice;
  past(choice, {2, 5}, 200);
  store(choice, {2000, 5000});
  EXPECT_LE(past(choice, {2, 5}, 100), 10);
}

TEST(StoreChoice, SizesAreJudgedApart) {
  StoreChoice choice;
  const std::size_t large = 32 * kBytes;
  for (int i = 0; i < 50; ++i) {
    store(choice, {1, 4});
    store(choice, {4, 1}, large);
  }
  EXPECT_LE(past(choice, {1, 4}, 20), 3);
  EXPECT_GE(past(choice, {4, 1}, 20, large), 17);
  // The largest share a place.
  EXPECT_LE(past(choice, {1, 4}, 3, std::size_t{1} << 40), 3);
}

}  // namespace
}  // namespace tutti::runtime
