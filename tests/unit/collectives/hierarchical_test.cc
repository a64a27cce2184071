// Groups within groups: every way to cut some worlds is proved, and levels come from the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "collectives/algorithms/table.hpp"
#include "collectives/expand.hpp"
#include "collectives/lowering.hpp"
#include "collectives/placement_groups.hpp"
#include "collectives/planner.hpp"
#include "collectives/text.hpp"
#include "collectives/verifier.hpp"

namespace tutti::collectives {
namespace {

using ::testing::HasSubstr;

std::vector<const Algorithm*> grouped() {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : all_algorithms())
    if (algorithm.grouped) found.push_back(&algorithm);
  return found;
}

void prove(const Algorithm& algorithm, int ranks, Rank root, const GroupSizes& groups) {
  const Result<Schedule> schedule = build(algorithm, ranks, root, groups);
  ASSERT_TRUE(schedule.ok()) << schedule.status().message();
  std::vector<ExpandedProgram> programs;
  for (Rank rank = 0; rank < ranks; ++rank) programs.push_back(expand(*schedule, rank));
  const std::string name = std::string(to_string(algorithm.collective)) + ", " +
                           std::to_string(ranks) + " ranks, " + groups.text() + ", root " +
                           std::to_string(root);
  const Verdict verdict = verify(schedule->shape, programs);
  ASSERT_TRUE(verdict.ok()) << name << ": " << verdict.reason;
  const std::vector<LoweredProgram> lowered = lower_all(*schedule);
  for (const Addressability& addressable :
       {all_direct(ranks), direct_within(ranks, groups.sizes()[0]),
        direct_within(ranks, groups.outermost()), some_direct(ranks, 1), some_direct(ranks, 2)}) {
    const Verdict direct = verify_lowered(lowered, addressable);
    ASSERT_TRUE(direct.ok()) << name << ": " << direct.reason;
  }
}

TEST(Hierarchical, GroupsWithinGroupsAreProved) {
  const std::vector<std::pair<int, GroupSizes>> worlds = {
      {8, GroupSizes({2, 2})},     {12, GroupSizes({2, 3})}, {12, GroupSizes({3, 2})},
      {18, GroupSizes({3, 3})},    {16, GroupSizes({4, 2})}, {16, GroupSizes({2, 2, 2})},
      {24, GroupSizes({2, 3, 2})},
  };
  for (const Algorithm* algorithm : grouped()) {
    if (algorithm->in_turn()) continue;  // its groups are of two
    for (const auto& [ranks, groups] : worlds)
      for (Rank root = 0; root < (has_root(algorithm->collective) ? ranks : 1); ++root)
        ASSERT_NO_FATAL_FAILURE(prove(*algorithm, ranks, root, groups));
  }
}

// One level of groups more leaves fewer and smaller messages between the outermost ones.
TEST(Hierarchical, OnlyItsShareOfTheDataLeavesThroughARank) {
  const Algorithm& algorithm = **find_algorithm(Collective::all_reduce, "hierarchical");
  const Schedule schedule = *build(algorithm, 8, 0, GroupSizes({2, 2}));
  const std::vector<ExpandedStep> steps = expand(schedule, 5);  // places 1, 0, 1
  std::set<int> peers;
  int outward = 0;
  for (const ExpandedStep& step : steps)
    for (const ExpandedOperand& operand : step.destinations) {
      if (operand.kind != Operand::Kind::message) continue;
      peers.insert(operand.index);
      outward += operand.index == 1 ? operand.count : 0;
    }
  EXPECT_THAT(peers, ::testing::ElementsAre(1, 4, 7)) << "the neighbour at each level";
  EXPECT_EQ(outward, 2) << "of 8 chunks: one is reduced, one is handed on";
}

TEST(Hierarchical, SizesThatDoNotFitAreRefused) {
  const Algorithm& algorithm = **find_algorithm(Collective::all_reduce, "hierarchical");
  for (const auto& groups : {GroupSizes({2, 3}), GroupSizes({2, 2, 2}), GroupSizes({1, 2}),
                             GroupSizes(std::vector<int>{0}), GroupSizes({-2, -2})}) {
    const Result<Schedule> schedule = build(algorithm, 8, 0, groups);
    ASSERT_FALSE(schedule.ok()) << groups.text();
    EXPECT_EQ(schedule.status().code(), StatusCode::unsupported);
  }
}

TEST(Hierarchical, LevelsComeFromTheMachine) {
  const Topology topology = *parse_synthetic_topology("2x4 numa=2 nic=10");
  Planner planner(topology, seats(topology), {});
  const Explanation explanation = *planner.explain({Collective::all_reduce, 1 << 20});
  std::vector<std::string> groups;
  for (const Candidate& candidate : explanation.candidates)
    if (candidate.algorithm == "hierarchical" && candidate.not_possible.empty())
      groups.push_back(candidate.groups.text());
  EXPECT_THAT(groups, ::testing::UnorderedElementsAre("4", "2x2"));
  EXPECT_THAT(to_text(explanation), HasSubstr("hierarchical 2x2"));
  // Different groups are different plans.
  EXPECT_NE(plan_hash("hierarchical", GroupSizes(4), {}, {}),
            plan_hash("hierarchical", GroupSizes({2, 2}), {}, {}));
  // Within one node, memory domains are the groups.
  const Topology alone = *parse_synthetic_topology("1x8 numa=2");
  Planner inside(alone, seats(alone), {});
  const Explanation one = *inside.explain({Collective::all_reduce, 1 << 20});
  EXPECT_TRUE(std::any_of(one.candidates.begin(), one.candidates.end(), [](const Candidate& c) {
    return c.groups == GroupSizes(4) && c.not_possible.empty();
  }));
}

TEST(Hierarchical, RanksThatShareASeatAreAGroup) {
  const Topology cores = *parse_synthetic_topology("2");
  const VertexId a = seats(cores)[0];
  const VertexId b = seats(cores)[1];
  EXPECT_EQ(groups_of(cores, {a, a, a, b, b, b}), std::vector{GroupSizes(3)});
  // Not in a row, not equally many, nobody shares: the node is all there is.
  EXPECT_EQ(groups_of(cores, {a, b, a, b}), std::vector{GroupSizes(4)});
  EXPECT_EQ(groups_of(cores, {a, a, a, b}), std::vector{GroupSizes(4)});
  EXPECT_EQ(groups_of(cores, {a, b}), std::vector{GroupSizes(2)});
  // Seats within nodes.
  const Topology nodes = *parse_synthetic_topology("2x2 nic=10");
  const std::vector<VertexId> each = seats(nodes);
  EXPECT_EQ(
      groups_of(nodes, {each[0], each[0], each[1], each[1], each[2], each[2], each[3], each[3]}),
      (std::vector{GroupSizes(4), GroupSizes({2, 2})}));
}

}  // namespace
}  // namespace tutti::collectives
