// shm_patience_test.cc: which memory is tried again when, by a clock that the test sets.
#include "transport/shm/patience.hpp"

#include <gtest/gtest.h>

namespace tutti::transport::shm {
namespace {

using namespace std::chrono_literals;
using Time = Patience::Clock::time_point;

constexpr std::uintptr_t kMemory = 0x7f00'0000'0000;

// How many calls pass before memory is tried.
unsigned calls_until_over(Patience& patience, std::uintptr_t memory = kMemory) {
  unsigned calls = 0;
  while (!patience.over(memory)) ++calls;
  return calls;
}

TEST(Patience, MemoryIsTriedAtFirst) {
  Patience patience;
  EXPECT_EQ(calls_until_over(patience), 0U);
}

TEST(Patience, MemoryThatGoesAtOnceIsPutOffForTwiceAsManyCallsEachTime) {
  Patience patience;
  Time now = Time() + 1h;
  for (unsigned wait : {1U, 3U, 7U, 15U}) {
    patience.moved(kMemory, now, now + 10ms);
    patience.lost(kMemory, now + 29ms);
    now += 1s;
    EXPECT_EQ(calls_until_over(patience), wait);
  }
}

TEST(Patience, MemoryThatStayedForLongEnoughIsTriedAtOnce) {
  Patience patience;
  const Time now = Time() + 1h;
  patience.moved(kMemory, now, now + 10ms);
  patience.lost(kMemory, now + 11ms);
  EXPECT_EQ(calls_until_over(patience), 1U);
  patience.moved(kMemory, now + 1s, now + 1010ms);
  patience.lost(kMemory, now + 1030ms);
  EXPECT_EQ(calls_until_over(patience), 0U);
  patience.moved(kMemory, now + 2s, now + 2010ms);
  patience.lost(kMemory, now + 2011ms);
  EXPECT_EQ(calls_until_over(patience), 1U) << "what had been before is forgotten";
}

// A part of it may go after another, and each is told of.
TEST(Patience, MemoryThatWasNotMovedSinceIsLostAtOnce) {
  Patience patience;
  const Time now = Time() + 1h;
  patience.moved(kMemory, now, now + 10ms);
  patience.lost(kMemory, now + 11ms);
  patience.lost(kMemory, now + 5s);
  EXPECT_EQ(calls_until_over(patience), 3U);
}

TEST(Patience, MemoryThatCannotBeMovedIsPutOffForSomeThousandCallsAtMost) {
  Patience patience;
  for (int times = 0; times < 20; ++times) patience.refused(kMemory);
  EXPECT_EQ(calls_until_over(patience), 4095U);
}

// Input and output, one behind the other: malloc gives large buffers such addresses.
TEST(Patience, LargeBuffersSideBySideDoNotTakeEachOthersPlace) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  for (std::size_t bytes = kBytes >> 8; bytes <= kBytes; bytes *= 2) {
    Patience patience;
    const Time now = Time() + 1h;
    patience.moved(kMemory, now, now + 10ms);
    patience.moved(kMemory - bytes, now + 10ms, now + 20ms);
    patience.lost(kMemory - bytes, now + 1s);
    patience.lost(kMemory, now + 1s);
    EXPECT_EQ(calls_until_over(patience), 0U) << bytes;
    EXPECT_EQ(calls_until_over(patience, kMemory - bytes), 0U) << bytes;
  }
}

TEST(Patience, OtherMemoryIsTriedAllTheSame) {
  Patience patience;
  patience.refused(kMemory);
  EXPECT_EQ(calls_until_over(patience, kMemory + kPageBytes), 0U);
}

}  // namespace
}  // namespace tutti::transport::shm
