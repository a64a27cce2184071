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

// A call of the leader and a follower; ticks by whether it pulls. Returns whether it did.
bool make_call(PullChoice& leader, PullChoice& follower, const Signature& call,
               std::uint64_t stores, std::uint64_t loads) {
  const bool pulls = leader.pulls(call);
  EXPECT_EQ(follower.pulls(call), pulls);
  const bool next = leader.propose(call);
  leader.heard(call, next);
  follower.heard(call, next);
  leader.took(call, pulls, pulls ? loads : stores);
  return pulls;
}

int pulled(PullChoice& leader, PullChoice& follower, const Signature& call, int calls,
           std::uint64_t stores, std::uint64_t loads) {
  int count = 0;
  for (int i = 0; i < calls; ++i) count += make_call(leader, follower, call, stores, loads) ? 1 : 0;
  return count;
}

TEST(PullChoice, TheQuickerWayIsAgreedOn) {
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
    const Signature call = call_of(collective, 10'000);
    PullChoice leader;
    PullChoice follower;
    EXPECT_FALSE(leader.pulls(call));
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
  EXPECT_TRUE(leader.pulls(one));
  EXPECT_FALSE(leader.pulls(call_of(Collective::all_to_all, 1'000)));
  EXPECT_FALSE(leader.pulls(call_of(Collective::all_gather, 4'000)));
  EXPECT_FALSE(leader.pulls(call_of(Collective::all_gather, 0)));
  EXPECT_FALSE(leader.pulls(call_of(Collective::all_gather, kCountMax)));
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
