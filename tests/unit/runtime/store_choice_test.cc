// Which way stores go, with times that the tests make up.
#include "runtime/store_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::runtime {
namespace {

using kernels::StoreHint;

constexpr std::size_t kBytes = std::size_t{64} << 10;
constexpr StoreChoice::Kind kCopy{};

// What storing costs, in ticks a byte.
struct Costs {
  std::uint64_t through = 1;
  std::uint64_t past = 1;
};

StoreHint store(StoreChoice& choice, const Costs& costs, std::size_t bytes = kBytes,
                StoreChoice::Kind kind = kCopy) {
  const StoreHint way = choice.choose(bytes, kind);
  choice.took(bytes * (way == StoreHint::streaming ? costs.past : costs.through));
  return way;
}

// How many of so many stores went past the caches.
int past(StoreChoice& choice, const Costs& costs, int stores, std::size_t bytes = kBytes,
         StoreChoice::Kind kind = kCopy) {
  int count = 0;
  for (int i = 0; i < stores; ++i)
    count += store(choice, costs, bytes, kind) == StoreHint::streaming ? 1 : 0;
  return count;
}

TEST(StoreChoice, BeginsThroughTheCachesAndTriesBothWays) {
  StoreChoice choice;
  EXPECT_EQ(past(choice, {1, 1}, 3), 0);
  EXPECT_EQ(past(choice, {1, 1}, 3), 3);
}

TEST(StoreChoice, KeepsTheQuickerWay) {
  StoreChoice through;
  past(through, {1, 4}, 6);
  EXPECT_LE(past(through, {1, 4}, 1000), 10) << "it is tried again now and then";
  StoreChoice beyond;
  past(beyond, {4, 1}, 6);
  EXPECT_GE(past(beyond, {4, 1}, 1000), 990);
}

TEST(StoreChoice, ASmallGainIsNotWorthIt) {
  StoreChoice choice;
  past(choice, {100, 85}, 6);
  EXPECT_LE(past(choice, {100, 85}, 100), 10);
}

// Another core reads a queue at once, so much more must be gained.
TEST(StoreChoice, QueuesStayInTheCachesUnlessStoresThereAreVerySlow) {
  const StoreChoice::Kind queued{.queued = true};
  StoreChoice choice;
  past(choice, {10, 5}, 6, kBytes, queued);
  EXPECT_LE(past(choice, {10, 5}, 100, kBytes, queued), 10);
  EXPECT_GE(past(choice, {10, 5}, 100), 80) << "other kinds are not judged by it";
  StoreChoice slow;
  past(slow, {10, 3}, 6, kBytes, queued);
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
