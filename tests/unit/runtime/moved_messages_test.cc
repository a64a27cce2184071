// Long messages over a transport that moves them from memory to memory: each goes there at once,
// the first one of a call, too, whose head is the call's record.
#include <gtest/gtest.h>

#include "unit/runtime/rounds.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

constexpr std::size_t kFrameBytes = 65536;
constexpr std::size_t kCalls = 3;

Moved moved_in(Collective collective, std::size_t count, bool in_place) {
  Moved moved;
  Calls calls{collective, "direct"};
  calls.frame_bytes = kFrameBytes;
  calls.moved = &moved;
  Rounds rounds(calls, 2, count, in_place);
  for (std::size_t call = 0; call < kCalls; ++call) rounds.all_the_general_way();
  return moved;
}

TEST(MovedMessages, TheFirstOneIsTakenBehindItsRecord) {
  for (const bool in_place : {false, true}) {
    const Moved moved = moved_in(Collective::all_gather, 5003, in_place);
    EXPECT_EQ(moved.behind_heads, 2 * kCalls);
    EXPECT_EQ(moved.whole, 0U);
    EXPECT_EQ(moved.shown, 0U) << "what peek() shows has been copied";
  }
}

TEST(MovedMessages, ThoseBehindItAreTakenWhole) {
  const Moved moved = moved_in(Collective::all_to_all, 30'011, false);
  EXPECT_EQ(moved.behind_heads, 2 * kCalls);
  EXPECT_EQ(moved.whole, 2 * kCalls * 3) << "of four slices each";
  EXPECT_EQ(moved.shown, 0U);
}

// Of a reduce_scatter in long frames, of which half as many bytes come at a time as are summed at
// once, and then more.
Calls sums_as_they_come(Moved& moved, std::size_t bytes_at_a_time) {
  moved.bytes_at_a_time = bytes_at_a_time;
  Calls calls{Collective::reduce_scatter, "direct"};
  calls.frame_bytes = 4 * kFrameBytes;
  calls.moved = &moved;
  return calls;
}

TEST(MovedMessages, WhatHasComeIsAdded) {
  for (const int ranks : {2, 3})
    for (const bool in_place : {false, true})
      for (const std::size_t at_a_time : {kFrameBytes / 2, 2 * kFrameBytes + 8}) {
        Moved moved;
        Rounds rounds(sums_as_they_come(moved, at_a_time), ranks, 30'011, in_place);
        for (std::size_t call = 0; call < kCalls; ++call)
          ASSERT_NO_FATAL_FAILURE(rounds.all_the_general_way());
        if (ranks > 2) continue;  // their sums have more messages than one
        const std::size_t sums = at_a_time < kFrameBytes ? 3 : 0;  // before the frame is whole
        EXPECT_EQ(moved.parts, 2 * kCalls * (1 + sums)) << "the record of each, and those";
        EXPECT_EQ(moved.shown, 2 * kCalls) << "each once, when it was whole";
      }
}

// It may show when most of it has been added already.
TEST(MovedMessages, WhatIsNotAsLongAsItIsDueIsAnError) {
  for (const int longer : {-8, 8}) {
    Moved moved;
    moved.longer = longer;
    Rounds rounds(sums_as_they_come(moved, kFrameBytes / 2), 2, 30'011, false);
    rounds.one_that_fails();
    for (const Rank rank : {0, 1}) {
      const Status status = rounds.executor(rank).status();
      EXPECT_EQ(status.code(), StatusCode::mismatch) << longer;
      EXPECT_NE(status.message().find("were due"), std::string::npos) << status.message();
    }
  }
}

// Sums are made of what a queue shows, and only their results may go to memory.
TEST(MovedMessages, WhatIsAddedIsNotTaken) {
  const Moved moved = moved_in(Collective::all_reduce, 10'007, false);
  EXPECT_EQ(moved.behind_heads, 0U);
  EXPECT_EQ(moved.whole, 2 * kCalls);
  EXPECT_GT(moved.shown, 0U);
}

TEST(MovedMessages, ShortOnesAreNot) {
  const Moved moved = moved_in(Collective::all_gather, 2047, false);
  EXPECT_EQ(moved.behind_heads + moved.whole, 0U);
}

}  // namespace
}  // namespace tutti::runtime
