// pull_choice_test.cc: what the ranks of a communicator agree on, and by whose word.
#include "runtime/pull_choice.hpp"

#include <gtest/gtest.h>

namespace tutti::runtime {
namespace {

Signature call_of(Collective collective, std::size_t count) {
  Signature signature;
  signature.collective = collective;
  signature.count = count;
  return signature;
}

// A call of the leader and a follower; ticks by whether it stores. Returns whether it did not.
bool make_call(PullChoice& leader, PullChoice& follower, const Signature& call,
               std::uint64_t stores, std::uint64_t otherwise, CopyWay second) {
  leader.begin(call);
  follower.begin(call);
  const CopyWay way = leader.way();
  EXPECT_EQ(follower.way(), way);
  const CopyWay next = leader.propose(second);
  leader.heard(next);
  follower.heard(next);
  if (leader.wants_time()) leader.took(way, second, way == CopyWay::stored ? stores : otherwise);
  return way != CopyWay::stored;
}

int pulled(PullChoice& leader, PullChoice& follower, const Signature& call, int calls,
           std::uint64_t stores, std::uint64_t otherwise, CopyWay second = CopyWay::pulled) {
  int count = 0;
  for (int i = 0; i < calls; ++i)
    count += make_call(leader, follower, call, stores, otherwise, second) ? 1 : 0;
  return count;
}

CopyWay way_of(PullChoice& choice, const Signature& call) {
  choice.begin(call);
  return choice.way();
}

TEST(PullChoice, TheQuickerWayIsAgreedOn) {
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
    const Signature call = call_of(collective, 10'000);
    PullChoice leader;
    PullChoice follower;
    EXPECT_EQ(way_of(leader, call), CopyWay::stored);
    pulled(leader, follower, call, 20, 3'000, 1'000);
    EXPECT_GE(pulled(leader, follower, call, 1000, 3'000, 1'000), 950);
    EXPECT_LE(pulled(leader, follower, call, 1000, 1'000, 3'000), 200) << "times have changed";
  }
}

TEST(PullChoice, SizesAndCollectivesAreDifferentKinds) {
  PullChoice leader;
  PullChoice follower;
  const Signature one = call_of(Collective::all_gather, 1'000);
  pulled(leader, follower, one, 50, 3'000, 1'000);
  EXPECT_EQ(way_of(leader, one), CopyWay::pulled);
  EXPECT_EQ(way_of(leader, call_of(Collective::all_to_all, 1'000)), CopyWay::stored);
  EXPECT_EQ(way_of(leader, call_of(Collective::all_gather, 4'000)), CopyWay::stored);
  EXPECT_EQ(way_of(leader, call_of(Collective::all_gather, 0)), CopyWay::stored);
  EXPECT_EQ(way_of(leader, call_of(Collective::all_gather, kCountMax)), CopyWay::stored);
}

// A program makes few calls of so many bytes.
TEST(PullChoice, LongBlocksAreTriedFewTimes) {
  const Signature call = call_of(Collective::all_gather, std::uint64_t{32} << 20);
  PullChoice leader;
  PullChoice follower;
  EXPECT_LE(pulled(leader, follower, call, 10, 3'000, 4'000), 3);
  EXPECT_LE(pulled(leader, follower, call, 10, 3'000, 4'000), 3);
}

// Through queues they are copied twice, which nobody has to find out by one of a few long calls.
TEST(PullChoice, LongCopiesOfPlainMemoryBeginAttached) {
  const auto first = [](Collective collective, std::uint64_t mebibytes, CopyWay second) {
    Signature call = call_of(collective, mebibytes << 20);
    call.type = DataType::int8;
    PullChoice leader;
    leader.begin(call);
    return leader.propose(second);
  };
  for (const Collective copies : {Collective::broadcast, Collective::scatter, Collective::gather}) {
    EXPECT_EQ(first(copies, 8, CopyWay::attached), CopyWay::attached);
    EXPECT_EQ(first(copies, 256, CopyWay::attached), CopyWay::attached);
    EXPECT_EQ(first(copies, 4, CopyWay::attached), CopyWay::stored);
    EXPECT_EQ(first(copies, 256, CopyWay::pulled), CopyWay::stored);
  }
  EXPECT_EQ(first(Collective::all_gather, 256, CopyWay::attached), CopyWay::stored);
  EXPECT_EQ(first(Collective::reduce, 256, CopyWay::attached), CopyWay::stored);
  EXPECT_EQ(first(Collective::all_reduce, 256, CopyWay::attached), CopyWay::stored);
}

// The clock costs as much as a few dozen instructions.
TEST(PullChoice, CallsAreTimedWhileTheWayIsSoughtAndNowAndThen) {
  const Signature call = call_of(Collective::all_gather, 10'000);
  PullChoice leader;
  PullChoice follower;
  int timed = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool pulls = make_call(leader, follower, call, 3'000, 1'000, CopyWay::pulled);
    EXPECT_TRUE(i < 7 || pulls || leader.wants_time()) << "call " << i << " tries";
    EXPECT_TRUE(i >= 7 || leader.wants_time()) << "call " << i << " is one of the first";
    timed += leader.wants_time() ? 1 : 0;
  }
  EXPECT_GE(timed, 480);
  EXPECT_LE(timed, 560);
}

// Buffers that peers can reach and such that they cannot may take turns.
TEST(PullChoice, PlainMemoryIsTimedByItself) {
  const Signature call = call_of(Collective::all_gather, 1'000'000);
  PullChoice leader;
  PullChoice follower;
  pulled(leader, follower, call, 20, 1'000, 3'000, CopyWay::pulled);
  int attached = 0;  // of the first tries, whatever is known of other memory
  for (int i = 0; i < 4; ++i) {
    leader.begin(call);
    const CopyWay way = leader.propose(CopyWay::attached);
    leader.took(way, CopyWay::attached, way == CopyWay::attached ? 1'000 : 3'000);
    attached += way == CopyWay::attached ? 1 : 0;
  }
  EXPECT_EQ(attached, 2);
  EXPECT_GE(pulled(leader, follower, call, 100, 3'000, 1'000, CopyWay::attached), 85);
  EXPECT_LE(pulled(leader, follower, call, 100, 1'000, 3'000, CopyWay::pulled), 20);
  EXPECT_GE(pulled(leader, follower, call, 100, 3'000, 1'000, CopyWay::attached), 85);
}

// Who leads is through with a call when it is over.
TEST(PullChoice, WhoGetsTheDataLeads) {
  const auto leader = [](Collective collective, Rank root) {
    Signature call;
    call.collective = collective;
    call.root = root;
    return PullChoice::leader(call, 3);
  };
  EXPECT_EQ(leader(Collective::all_gather, 0), 0);
  EXPECT_EQ(leader(Collective::all_to_all, 0), 0);
  EXPECT_EQ(leader(Collective::broadcast, 0), 1);
  EXPECT_EQ(leader(Collective::broadcast, 2), 0);
  EXPECT_EQ(leader(Collective::scatter, 1), 2);
  EXPECT_EQ(leader(Collective::gather, 1), 1);
}

}  // namespace
}  // namespace tutti::runtime
