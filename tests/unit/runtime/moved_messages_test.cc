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
