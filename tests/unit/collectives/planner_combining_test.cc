// When the ranks of a call combine in shared memory, when they only try it, and when they cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "collectives/explain.hpp"
#include "collectives/planner.hpp"
#include "unit/collectives/planners.hpp"

namespace tutti::collectives {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kKiB = 1024;

PlannerOptions with_shared_memory() {
  PlannerOptions options = with_direct();
  options.direct_bytes_min = kDirectBytesMin;
  options.memory_shared = true;
  return options;
}

PlannerOptions forced(std::string algorithm, Lowering lowering = Lowering::automatic) {
  PlannerOptions options = with_shared_memory();
  options.algorithm = std::move(algorithm);
  options.lowering = lowering;
  return options;
}

bool has(const std::vector<std::shared_ptr<const Plan>>& plans, std::string_view algorithm) {
  return std::ranges::any_of(plans, [&](const auto& p) { return p->algorithm == algorithm; });
}

TEST(PlannerCombining, SmallCallsOfSharedCoresDo) {
  for (const int ranks : {4, 6, 8}) {
    Planner planner = neighbours_first(ranks, with_shared_memory());
    for (const std::size_t bytes : {8UL, kKiB, 8 * kKiB, 32 * kKiB}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(bytes));
      const auto plan = *planner.plan(all_reduce(bytes), 0);
      EXPECT_EQ(plan->algorithm, "combining");
      EXPECT_EQ(plan->combining_group, ranks / 2);
      EXPECT_EQ(plan->plain, nullptr) << "nothing else is tried";
      EXPECT_EQ(plan->hash, (*planner.plan(all_reduce(bytes), 1))->hash);
    }
    EXPECT_EQ((*planner.plan({Collective::all_gather, 2}, 0))->combining_group, 0);
  }
}

// Of longer ones it is found out what that is worth, whatever the memory.
TEST(PlannerCombining, IsTriedByLongerCalls) {
  for (const int ranks : {4, 8}) {
    Planner planner = neighbours_first(ranks, with_shared_memory());
    for (const std::size_t bytes : {32 * kKiB + 4, 64 * kKiB, 128 * kKiB}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(bytes));
      const auto plan = *planner.plan(all_reduce(bytes), 0);
      ASSERT_NE(plan->plain, nullptr);
      for (const Plan* first : {plan.get(), plan->plain.get()}) {
        EXPECT_NE(first->algorithm, "combining");
        EXPECT_TRUE(has(first->others, "combining"));
      }
    }
    const auto longer = *planner.plan(all_reduce(128 * kKiB + 4), 0);
    EXPECT_FALSE(has(longer->others, "combining") || has(longer->plain->others, "combining"));
  }
}

// In the order of ranks where groups are powers of two, by the tree over them.
TEST(PlannerCombining, KeepsTheOrderOfRanks) {
  for (const int ranks : {4, 6, 8}) {
    PlanQuery query = all_reduce(8);
    query.form = rank_tree_form(DataType::float32);
    const auto plan = *neighbours_first(ranks, with_shared_memory()).plan(query, 0);
    EXPECT_EQ(plan->algorithm == "combining", ranks != 6) << plan->algorithm;
    EXPECT_TRUE(plan->program->ordered);
  }
}

TEST(PlannerCombining, NeedsSharedMemoryAndSharedCores) {
  Planner none = neighbours_first(4);
  const Explanation explanation = *none.explain(all_reduce(8));
  EXPECT_NE(explanation.candidates.front().algorithm, "combining");
  ASSERT_NE(find(explanation, "combining"), nullptr);
  EXPECT_THAT(find(explanation, "combining")->not_possible, HasSubstr("memory that all ranks see"));
  EXPECT_EQ((*none.plan(all_reduce(64 * kKiB), 0))->plain, nullptr) << "as it was";

  Planner apart = make("2x2", 4, with_shared_memory());
  EXPECT_THAT(find(*apart.explain(all_reduce(8)), "combining")->not_possible,
              HasSubstr("is for ranks that share cores"));
}

TEST(PlannerCombining, SaysWhyItCannotServe) {
  Planner planner = neighbours_first(4, forced("combining"));
  EXPECT_TRUE(planner.plan(all_reduce(128 * kKiB), 0).ok());
  const auto too_long = planner.plan(all_reduce(128 * kKiB + 4), 0);
  EXPECT_EQ(too_long.status().code(), StatusCode::unsupported);
  EXPECT_THAT(too_long.status().message(),
              HasSubstr("combining: serves up to 128 KiB; use leaders_one_shot"));
  const auto refused =
      Planner(neighbours_first(4, forced("combining", Lowering::direct))).plan(all_reduce(8), 0);
  EXPECT_THAT(refused.status().message(), HasSubstr("exchanges no addresses; use staged"));
  PlanQuery varied = all_reduce(8);
  varied.varied = true;
  EXPECT_THAT(planner.plan(varied, 0).status().message(), HasSubstr("blocks of equal size"));
  const auto five = neighbours_first(5, forced("combining")).plan(all_reduce(8), 0);
  EXPECT_EQ(five.status().code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace tutti::collectives
