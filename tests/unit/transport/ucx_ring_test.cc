// ucx_ring_test.cc: the two ends of a queue over UCX, without UCX: frames that come in another
// order than they were sent, and claims that make no sense.
#include "transport/ucx/ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace tutti::transport::ucx {
namespace {

using testing::HasSubstr;

constexpr std::size_t kCapacity = 1024;
constexpr std::size_t kFrameMax = 512;

// What admit() says against a claim; empty: nothing.
std::string objection(Inbox& inbox, const Inbox::Claim& claim) {
  const char* why = nullptr;
  std::byte* const place = inbox.admit(claim, why);
  if (place != nullptr) return "";
  return why == nullptr ? "no memory" : why;
}

// Two frames of 200 bytes that have arrived and were not released: four grains each.
void receive_two_frames(Inbox& inbox) {
  EXPECT_EQ(objection(inbox, {.number = 0, .position = 0, .tag = 1, .bytes = 200}), "");
  EXPECT_EQ(objection(inbox, {.number = 1, .position = 256, .tag = 2, .bytes = 200}), "");
  inbox.finish(0);
  inbox.finish(1);
}

struct BadClaim {
  const char* name;
  Inbox::Claim claim;
  const char* why;
};

TEST(UcxRing, ClaimsThatMakeNoSenseAreRefused) {
  const BadClaim kBad[] = {
      {"too long", {2, 512, 0, kFrameMax + 1}, "too long"},
      {"longer than anything", {2, 512, 0, ~std::size_t{0}}, "too long"},
      {"a number again", {1, 512, 0, 10}, "out of its order"},
      {"a number of long ago", {0, 512, 0, 10}, "out of its order"},
      {"a number far ahead", {kFramesMax, 512, 0, 10}, "out of its order"},
      {"the last number that there is", {~std::uint64_t{0}, 512, 0, 10}, "out of its order"},
      {"no grain's beginning", {2, 513, 0, 10}, "in no place"},
      {"over the end of the ring", {2, 960, 0, 100}, "in no place"},
      {"over an unreleased frame", {2, 256, 0, 10}, "in no place"},
      {"over the oldest frame, a round later", {2, 1024, 0, 10}, "without room"},
      {"rounds ahead", {2, 512 + 64 * kCapacity, 0, 10}, "without room"},
      {"the last position that there is", {2, ~std::uint64_t{63}, 0, 10}, "without room"},
      {"a gap before it", {2, 576, 0, 10}, "another one's place"},
  };
  for (const BadClaim& bad : kBad) {
    SCOPED_TRACE(bad.name);
    Inbox inbox(kCapacity, kFrameMax);
    receive_two_frames(inbox);
    EXPECT_THAT(objection(inbox, bad.claim), HasSubstr(bad.why));
  }
  Inbox inbox(kCapacity, kFrameMax);
  receive_two_frames(inbox);
  EXPECT_EQ(objection(inbox, {.number = 2, .position = 512, .tag = 0, .bytes = 10}), "");
}

// Without any of them released, wherever the first begins.
TEST(UcxRing, TwoOfTheLongestFramesFitInEveryPosition) {
  constexpr std::size_t kLongest = 1000;
  for (std::size_t before = 0; before < 4 * kLongest; before += kGrainBytes) {
    Outbox outbox(ring_bytes(2 * kLongest, kLongest));
    std::uint64_t sent = 0;
    for (std::size_t left = before; left > 0; left -= kGrainBytes) {
      ASSERT_NE(outbox.room(kGrainBytes), nullptr);
      outbox.commit(kGrainBytes);
      outbox.free_until(++sent);
    }
    // One that is there still, so that the ring does not begin anew.
    ASSERT_NE(outbox.room(1), nullptr);
    outbox.commit(1);
    for (int frame = 0; frame < 2; ++frame) {
      ASSERT_NE(outbox.room(kLongest), nullptr) << "frame " << frame << " behind " << before;
      outbox.commit(kLongest);
      if (frame == 0) outbox.free_until(sent + 1);
    }
  }
}

TEST(UcxRing, WhatComesEarlyMustFitToWhatComesLater) {
  for (const std::uint64_t position : {256u, 320u}) {
    Inbox inbox(kCapacity, kFrameMax);
    EXPECT_EQ(objection(inbox, {.number = 1, .position = position, .tag = 0, .bytes = 10}), "");
    const std::string said = objection(inbox, {.number = 0, .position = 0, .tag = 0, .bytes = 200});
    EXPECT_EQ(said.empty(), position == 256) << said;
  }
}

TEST(UcxRing, FramesShowInTheirOrderOnceTheyAreWhole) {
  Inbox inbox(kCapacity, kFrameMax);
  Frame frame;
  EXPECT_EQ(objection(inbox, {.number = 1, .position = 64, .tag = 8, .bytes = 0}), "");
  inbox.finish(1);
  EXPECT_FALSE(inbox.front(frame));
  EXPECT_EQ(objection(inbox, {.number = 0, .position = 0, .tag = 7, .bytes = 5}), "");
  EXPECT_FALSE(inbox.front(frame));
  inbox.finish(0);
  ASSERT_TRUE(inbox.front(frame));
  EXPECT_EQ(frame.tag, 7u);
  EXPECT_EQ(frame.payload.size(), 5u);
  inbox.release();
  ASSERT_TRUE(inbox.front(frame));
  EXPECT_EQ(frame.tag, 8u);
  inbox.release();
  EXPECT_FALSE(inbox.front(frame));
  EXPECT_TRUE(inbox.empty());
  EXPECT_EQ(inbox.released(), 2u);
}

TEST(UcxRing, AFrameThatTurnsOutShortLiesWhereItsReceiverExpectsIt) {
  Outbox outbox(kCapacity);
  Inbox inbox(kCapacity, kFrameMax);
  ASSERT_NE(outbox.room(500), nullptr);
  EXPECT_EQ(outbox.commit(500).position, 0u);
  ASSERT_NE(outbox.room(384), nullptr);
  EXPECT_EQ(outbox.commit(384).position, 512u);
  outbox.free_until(2);
  std::byte* const room = outbox.room(500);  // after the ring's end, which is 128 bytes away
  ASSERT_EQ(room, outbox.at(1024));
  std::memset(room, 'x', 500);
  const Outbox::Sent sent = outbox.commit(100);
  EXPECT_EQ(sent.position, 896u);
  EXPECT_EQ(*outbox.at(sent.position), std::byte{'x'});
}

// A sender and a receiver with a network between them that mixes up what is under way; frames are
// found whole, in order, and where no unreleased one lies.
TEST(UcxRing, RandomTrafficThatIsMixedUpOnTheWay) {
  struct Flying {
    Inbox::Claim claim;
    std::vector<std::byte> bytes;
  };
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::minstd_rand random(seed);
    Outbox outbox(kCapacity);
    Inbox inbox(kCapacity, kFrameMax);
    std::vector<Flying> flying;
    std::deque<std::vector<std::byte>> expected;
    std::uint64_t told = 0;
    std::uint32_t received = 0;
    std::size_t stuck = 0;
    for (int step = 0; step < 4000; ++step) {
      switch (random() % 4) {
        case 0: {
          const std::size_t asked = random() % (kFrameMax + 1);
          std::byte* const room = outbox.room(asked);
          if (room == nullptr) break;
          const std::size_t bytes = random() % 3 == 0 ? asked / 2 : asked;
          for (std::size_t i = 0; i < bytes; ++i) room[i] = static_cast<std::byte>(random());
          const Outbox::Sent sent = outbox.commit(bytes);
          const std::byte* const at = outbox.at(sent.position);
          expected.emplace_back(at, at + bytes);
          flying.push_back(
              {{sent.number, sent.position, static_cast<std::uint32_t>(sent.number), bytes},
               expected.back()});
          break;
        }
        case 1: {
          if (flying.empty()) break;
          const std::size_t which = random() % flying.size();
          const char* why = nullptr;
          std::byte* const place = inbox.admit(flying[which].claim, why);
          ASSERT_NE(place, nullptr) << "seed " << seed << ": " << (why == nullptr ? "" : why);
          std::copy(flying[which].bytes.begin(), flying[which].bytes.end(), place);
          inbox.finish(flying[which].claim.number);
          flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(which));
          break;
        }
        case 2: {
          Frame frame;
          if (!inbox.front(frame)) break;
          ASSERT_EQ(frame.tag, received++);
          ASSERT_TRUE(std::equal(frame.payload.begin(), frame.payload.end(),
                                 expected.front().begin(), expected.front().end()))
              << "seed " << seed << ", frame " << frame.tag;
          expected.pop_front();
          inbox.release();
          break;
        }
        default:
          // As an endpoint: told when much is owed, or when it is asked.
          if (inbox.owes() || ++stuck % 8 == 0) told = inbox.released();
          if (told == inbox.released()) inbox.told();
          outbox.free_until(told);
      }
    }
    EXPECT_GT(received, 300u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tutti::transport::ucx
