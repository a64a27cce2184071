// What the planner sees of hosts and cores, and the host cards that it comes from.
#include "runtime/planning_topology.hpp"

#include <gtest/gtest.h>

namespace tutti::runtime {
namespace {

HostCard card(const std::string& host, std::vector<int> cpus) {
  return HostCard{host, std::move(cpus), ""};
}

TEST(PlanningTopology, EveryRankHasItsCoreWhileThereAreEnough) {
  const std::vector<HostCard> cards = {card("a", {0}), card("a", {1}), card("b", {0})};
  auto seen = planning_topology(cards, true);
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  ASSERT_EQ(seen->placement.size(), 3U);
  EXPECT_NE(seen->placement[0], seen->placement[1]);
  const Topology& t = seen->topology;
  EXPECT_EQ(t.node_of(seen->placement[0]), t.node_of(seen->placement[1]));
  EXPECT_NE(t.node_of(seen->placement[0]), t.node_of(seen->placement[2]));
  EXPECT_FALSE(ranks_share_cores(cards, 0));
  EXPECT_FALSE(ranks_share_cores(cards, 2));
}

TEST(PlanningTopology, MoreRanksThanCoresTakeTurns) {
  const std::vector<HostCard> cards(5, card("a", {0, 1}));
  auto seen = planning_topology(cards, true);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->placement[0], seen->placement[2]);
  EXPECT_EQ(seen->placement[1], seen->placement[3]);
  EXPECT_NE(seen->placement[0], seen->placement[1]);
  EXPECT_TRUE(ranks_share_cores(cards, 4));
}

TEST(PlanningTopology, RanksBoundToOneCoreSitOnIt) {
  const std::vector<HostCard> cards = {card("a", {0}), card("a", {0}), card("a", {1}),
                                       card("a", {1}), card("b", {0})};
  auto seen = planning_topology(cards, true);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->placement[0], seen->placement[1]);
  EXPECT_EQ(seen->placement[2], seen->placement[3]);
  EXPECT_NE(seen->placement[1], seen->placement[2]);
  EXPECT_NE(seen->placement[0], seen->placement[4]);
}

TEST(PlanningTopology, NeighboursAreBoundToTheSameCore) {
  const std::vector<HostCard> cards = {card("a", {0}), card("a", {1}), card("a", {0}),
                                       card("b", {0}), card("a", {0, 1})};
  EXPECT_EQ(neighbours(cards, 0), (std::vector{false, false, true, false, false}));
  EXPECT_EQ(neighbours(cards, 2), (std::vector{true, false, false, false, false}));
  for (const Rank alone : {1, 3, 4}) EXPECT_TRUE(neighbours(cards, alone).empty()) << alone;
  EXPECT_TRUE(neighbours(std::vector<HostCard>(3, card("a", {0, 1})), 0).empty());
}

// Containers and network namespaces have networks of their own, and no cores of their own.
TEST(PlanningTopology, CoresAreSharedAcrossTheNetworksOfOneMachine) {
  const std::vector<HostCard> cards = {card("m/net:[1]", {0, 1}), card("m/net:[2]", {0, 1}),
                                       card("m/net:[1]", {0, 1}), card("other/net:[1]", {0, 1})};
  EXPECT_TRUE(ranks_share_cores(cards, 0));
  EXPECT_TRUE(ranks_share_cores(cards, 1));
  EXPECT_FALSE(ranks_share_cores(cards, 3));
  EXPECT_EQ(cores_shared(cards, 1), 2);
  EXPECT_EQ(cores_shared(cards, 3), 1);
  const std::vector<HostCard> bound = {card("m/net:[1]", {0}), card("m/net:[2]", {0}),
                                       card("other/net:[1]", {0})};
  EXPECT_EQ(neighbours(bound, 0), (std::vector{false, true, false}));
  EXPECT_TRUE(neighbours(bound, 2).empty());
}

TEST(PlanningTopology, RanksOnSocketsMeetInTheNetwork) {
  const std::vector<HostCard> cards(3, card("a", {0, 1}));
  auto seen = planning_topology(cards, false);
  ASSERT_TRUE(seen.ok());
  EXPECT_NE(seen->placement[0], seen->placement[2]);
  auto path = find_path(seen->topology, seen->placement[0], seen->placement[2]);
  ASSERT_TRUE(path.ok());
  for (const Hop& hop : path->hops)
    EXPECT_EQ(seen->topology.link(hop.link).kind, LinkKind::network);
}

// The seats stay apart, so that no message looks as if it went through memory.
TEST(PlanningTopology, RanksOnSocketsShareTheCoresOfTheirMachine) {
  const std::vector<HostCard> crowd = {card("m/net:[1]", {0, 1}), card("m/net:[2]", {0, 1}),
                                       card("m/net:[1]", {0, 1}), card("m/net:[2]", {0, 1}),
                                       card("other", {0, 1}),     card("other", {0, 1})};
  auto seen = planning_topology(crowd, false);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->cores, (std::vector{0, 1, 0, 1, 2, 3}));
  EXPECT_NE(seen->placement[0], seen->placement[2]);
  const std::vector<HostCard> bound = {card("m", {3}), card("m", {2}), card("m", {3}),
                                       card("other", {3})};
  EXPECT_EQ(planning_topology(bound, false)->cores, (std::vector{0, 1, 0, 2}));
  const std::vector<HostCard> unknown(2, card("m", {}));
  EXPECT_EQ(planning_topology(unknown, false)->cores, (std::vector{0, 0}));
}

// Through memory, a core is a seat.
// Whether no wire is between any two of them, and each has a core to itself.
TEST(PlanningTopology, SocketsOfOneMachineHaveNoWire) {
  const auto within = [](const std::vector<HostCard>& cards, bool through_memory = false) {
    return planning_topology(cards, through_memory).value().one_machine;
  };
  const HostCard anywhere = card("m/net:[1]", {0, 1});
  const HostCard beside = card("m/net:[2]", {0, 1});
  const HostCard distant = card("other/net:[1]", {0, 1});
  EXPECT_TRUE(within({anywhere, anywhere}));
  EXPECT_TRUE(within({anywhere, beside}));
  EXPECT_TRUE(within({card("m", {0}), card("m", {1})}));
  EXPECT_FALSE(within({anywhere, distant}));
  EXPECT_FALSE(within({anywhere, anywhere, beside})) << "two cores for three";
  EXPECT_FALSE(within({card("m", {0}), card("m", {0})}));
  EXPECT_FALSE(within({anywhere, anywhere}, true)) << "through memory";
  const auto speed = [](const std::vector<HostCard>& cards) {
    const auto seen = planning_topology(cards, false);
    const Topology& t = seen->topology;
    return t.link(t.links_at(seen->placement[0]).front()).bandwidth_ab;
  };
  EXPECT_GT(speed({anywhere, beside}), speed({anywhere, distant}));
}

TEST(PlanningTopology, RanksOnOneSeatAreOnOneCore) {
  auto seen = planning_topology(std::vector<HostCard>(5, card("a", {0, 1})), true);
  ASSERT_TRUE(seen.ok());
  EXPECT_TRUE(seen->cores.empty()) << "then the model takes their seats for cores";
  for (std::size_t rank = 0; rank < 5; ++rank)
    for (std::size_t other = 0; other < 5; ++other)
      EXPECT_EQ(rank % 2 == other % 2, seen->placement[rank] == seen->placement[other]);
}

TEST(HostCard, SurvivesTheTrip) {
  HostCard mine = describe_host();
  mine.settings = "algorithm \"ring\"";
  EXPECT_FALSE(mine.host.empty());
  EXPECT_FALSE(mine.cpus.empty());
  auto back = decode_host_card(encode(mine));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, mine);
}

TEST(HostCard, NonsenseIsCorruptData) {
  for (const char* text : {"", "{", "[]", "{}", R"({"host":1})",
                           R"({"host":"a","settings":"","failure":"","cpus":[1.5]})",
                           R"({"host":"a","settings":"","failure":"","cpus":{}})"})
    EXPECT_EQ(decode_host_card(text).status().code(), StatusCode::corrupt_data) << text;
}

}  // namespace
}  // namespace tutti::runtime
