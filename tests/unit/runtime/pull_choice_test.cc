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
  const CopyWay way = leader.way(call);
  EXPECT_EQ(follower.way(call), way);
  const CopyWay next = leader.propose(call, second);
  leader.heard(call, next);
  follower.heard(call, next);
  leader.took(call, way, second, way == CopyWay::stored ? stores : otherwise);
  return way != CopyWay::stored;
}

int pulled(PullChoice& leader, PullChoice& follower, const Signature& call, int calls,
           std::uint64_t stores, std::uint64_t otherwise, CopyWay second = CopyWay::pulled) {
  int count = 0;
  for (int i = 0; i < calls; ++i)
    count += make_call(leader, follower, call, stores, otherwise, second) ? 1 : 0;
  return count;
}

TEST(PullChoice, TheQuickerWayIsAgreedOn) {
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
    const Signature call = call_of(collective, 10'000);
    PullChoice leader;
    PullChoice follower;
    EXPECT_EQ(leader.way(call), CopyWay::stored);
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
  EXPECT_EQ(leader.way(one), CopyWay::pulled);
  EXPECT_EQ(leader.way(call_of(Collective::all_to_all, 1'000)), CopyWay::stored);
  EXPECT_EQ(leader.way(call_of(Collective::all_gather, 4'000)), CopyWay::stored);
  EXPECT_EQ(leader.way(call_of(Collective::all_gather, 0)), CopyWay::stored);
  EXPECT_EQ(leader.way(call_of(Collective::all_gather, kCountMax)), CopyWay::stored);
}

// Buffers that peers can reach and such that they cannot may take turns.
TEST(PullChoice, PlainMemoryIsTimedByItself) {
  const Signature call = call_of(Collective::all_gather, 1'000'000);
  PullChoice leader;
  PullChoice follower;
  pulled(leader, follower, call, 20, 1'000, 3'000, CopyWay::pulled);
  int attached = 0;  // of the first tries, whatever is known of other memory
  for (int i = 0; i < 4; ++i) {
    const CopyWay way = leader.propose(call, CopyWay::attached);
    leader.took(call, way, CopyWay::attached, way == CopyWay::attached ? 1'000 : 3'000);
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
