// The further plans of a call: for plain memory, and those that are tried while calls are made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "collectives/explain.hpp"
#include "collectives/planner.hpp"
#include "unit/collectives/planners.hpp"

namespace tutti::collectives {
namespace {

using ::testing::HasSubstr;

// Between ranks that share cores, where it is another algorithm, and known to all alike.
TEST(Planner, PlainMemoryHasAPlanOfItsOwn) {
  for (const int ranks : {4, 8}) {
    Planner planner = neighbours_first(ranks);
    const auto plan = *planner.plan(all_reduce(kMiB), 0);
    ASSERT_NE(plan->plain, nullptr) << ranks;
    EXPECT_EQ(plan->plain->algorithm, "leaders_direct");
    EXPECT_NE(plan->algorithm, "leaders_direct");
    EXPECT_TRUE(plan->settings.direct && !plan->plain->settings.direct);
    EXPECT_EQ(plan->plain->hash, (*planner.plan(all_reduce(kMiB), 1))->plain->hash);
    EXPECT_EQ((*planner.plan({Collective::broadcast, kMiB}, 0))->plain, nullptr);
    EXPECT_EQ((*planner.plan(all_reduce(8), 0))->plain, nullptr) << "it is staged anyway";
    const Explanation explanation = *planner.explain(all_reduce(kMiB));
    ASSERT_TRUE(explanation.plain);
    EXPECT_EQ(explanation.plain->algorithm, "leaders_direct");
    EXPECT_THAT(to_text(explanation),
                HasSubstr("cannot address the buffers: leaders_direct, staged, predicted "));
  }
  EXPECT_EQ((*make("1x4", 4, with_direct()).plan(all_reduce(kMiB), 0))->plain, nullptr);
  PlannerOptions forced = with_direct();
  forced.algorithm = "hierarchical";
  Planner only_that = neighbours_first(4, forced);
  EXPECT_EQ((*only_that.plan(all_reduce(kMiB), 0))->plain->algorithm, "hierarchical");
  PlannerOptions direct_only = with_direct();
  direct_only.lowering = Lowering::direct;
  EXPECT_EQ((*neighbours_first(4, direct_only).plan(all_reduce(kMiB), 0))->plain, nullptr);
}

// What many ranks of a core lay down for their leader is to stay in its cache.
TEST(Planner, LeadersOfManyTakeSmallerSlicesOfPlainMemory) {
  PlannerOptions options = with_direct();
  options.frame_bytes_max = options.slice_bytes_max = 128 * 1024;
  options.algorithm = "leaders_direct";
  const auto slices = [&](int ranks) {
    const auto plan = *neighbours_first(ranks, options).plan(all_reduce(kMiB), 0);
    return plan->plain->settings.slice_bytes;
  };
  EXPECT_EQ(slices(4), 128U * 1024);
  EXPECT_EQ(slices(8), 64U * 1024);
  options.slice_bytes = 96 * 1024;
  EXPECT_EQ(slices(8), 96U * 1024) << "as it was set";
}

// Between ranks with cores of their own, where only some memory can be addressed: what needs no
// addresses, of all calls in which all meet, and not so long that the system might copy it.
TEST(Planner, PlainMemoryOfOwnCoresNeedsNoAddresses) {
  PlannerOptions options = with_direct();
  options.direct_bytes_min = 8 * 1024;
  Planner planner = make("2", 2, options);
  constexpr std::size_t kCount = 16 * 1024;
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                      Collective::reduce_scatter, Collective::all_to_all}) {
    PlanQuery query{collective, kCount};
    const auto plan = *planner.plan(query, 0);
    ASSERT_NE(plan->plain, nullptr) << to_string(collective);
    EXPECT_TRUE(plan->settings.direct && !plan->plain->settings.direct);
    EXPECT_TRUE(plan->others.empty() && plan->plain->others.empty());
    EXPECT_EQ(plan->plain->hash, (*planner.plan(query, 1))->plain->hash);
    query.count = 16 * kCount;
    EXPECT_EQ((*planner.plan(query, 0))->plain, nullptr) << "it is long";
    EXPECT_EQ((*make("2", 2, with_direct()).plan({collective, kCount}, 0))->plain, nullptr)
        << "all memory can be addressed";
  }
  EXPECT_EQ((*planner.plan({Collective::broadcast, kCount}, 0))->plain, nullptr)
      << "its root may be gone before others begin";
  options.algorithm = "ring";
  const auto forced = *make("2", 2, options).plan(all_reduce(4 * kCount), 0);
  ASSERT_NE(forced->plain, nullptr);
  EXPECT_EQ(forced->plain->algorithm, "ring");
}

// Two messages that wait for each other cost more than to read twice. What the system might copy is
// tried, too.
TEST(Planner, LongSumsOfPlainMemoryOfTwoGoWhole) {
  PlannerOptions options = with_direct();
  options.direct_bytes_min = 8 * 1024;
  constexpr std::size_t kMany = 16 * kMiB;
  for (const bool ordered : {false, true}) {
    Planner planner = make("2", 2, options);
    PlanQuery query = all_reduce(kMany);
    if (ordered) query.form = rank_tree_form(DataType::float32);
    const auto plan = *planner.plan(query, 0);
    ASSERT_NE(plan->plain, nullptr);
    EXPECT_TRUE(plan->settings.direct && plan->others.empty());
    EXPECT_EQ(plan->plain->algorithm, "one_shot");
    EXPECT_FALSE(plan->plain->settings.direct);
    ASSERT_EQ(plan->plain->others.size(), 1U);
    EXPECT_EQ(plan->plain->others.front()->hash, plan->hash);
    EXPECT_EQ(plan->plain->hash, (*planner.plan(query, 1))->plain->hash);
    query.count = kMany / sizeof(float) - 1;
    EXPECT_EQ((*planner.plan(query, 0))->plain, nullptr) << "it is less";
  }
  EXPECT_EQ((*make("4", 4, options).plan(all_reduce(kMany), 0))->plain, nullptr) << "of more";
  EXPECT_EQ((*make("2", 2, with_direct()).plan(all_reduce(kMany), 0))->plain, nullptr)
      << "all memory can be addressed";
  PlanQuery moved{Collective::all_gather, kMany / sizeof(float)};
  EXPECT_EQ((*make("2", 2, options).plan(moved, 0))->plain, nullptr) << "nothing is added up";
  for (const char* settled : {"direct", "one_shot"}) {
    options.algorithm = settled;
    EXPECT_EQ((*make("2", 2, options).plan(all_reduce(kMany), 0))->plain, nullptr) << settled;
  }
}

// Other algorithms that calls may find to be quicker, where there is a plan for plain memory.
TEST(Planner, SmallPlansHaveOthersToTry) {
  constexpr std::size_t kBytes = 80 * 1024;
  for (const int ranks : {4, 8}) {
    SCOPED_TRACE(ranks);
    Planner planner = neighbours_first(ranks);
    const auto plan = *planner.plan(all_reduce(kBytes), 0);
    ASSERT_NE(plan->plain, nullptr);
    for (const Plan* first : {plan.get(), plan->plain.get()}) {
      EXPECT_FALSE(first->others.empty());
      EXPECT_LE(first->others.size(), 3U);
      std::set<std::string> names = {first->algorithm};
      for (const auto& other : first->others) {
        EXPECT_TRUE(names.insert(other->algorithm).second) << other->algorithm;
        EXPECT_TRUE(first == plan.get() || !other->settings.direct) << other->algorithm;
        EXPECT_TRUE(other->others.empty() && other->plain == nullptr);
      }
      if (ranks == 4 && first == plan->plain.get()) {
        EXPECT_FALSE(names.contains("leaders_in_turn")) << "it is for less";
        EXPECT_EQ(first->algorithm, "leaders_direct_in_turn");
      }
    }
    const auto theirs = *planner.plan(all_reduce(kBytes), 1);
    for (std::size_t other = 0; other < plan->plain->others.size(); ++other)
      EXPECT_EQ(plan->plain->others[other]->hash, theirs->plain->others[other]->hash);
    EXPECT_THAT(to_text(*planner.explain(all_reduce(kBytes))),
                HasSubstr("tried while calls are made, and kept if quicker: "));
    const auto longer = *planner.plan(all_reduce(kMiB), 0);
    EXPECT_TRUE(longer->others.empty()) << "too much to try";
    EXPECT_EQ(longer->plain->others.empty(), ranks == 4) << "more ranks on a core find more";
    // All that keep the order make the same sums.
    PlanQuery ordered = all_reduce(kBytes);
    ordered.form = rank_tree_form(DataType::float32);
    const Explanation in_order = *planner.explain(ordered);
    for (const auto& other : (*planner.plan(ordered, 0))->others)
      EXPECT_EQ(find(in_order, other->algorithm)->not_possible, "") << other->algorithm;
    EXPECT_FALSE((*planner.plan(ordered, 0))->others.empty());
  }
  PlannerOptions forced = with_direct();
  forced.algorithm = "direct";
  const auto only_that = *neighbours_first(4, forced).plan(all_reduce(kBytes), 0);
  EXPECT_TRUE(only_that->others.empty() && only_that->plain->others.empty());
  EXPECT_TRUE((*make("1x4", 4, with_direct()).plan(all_reduce(kBytes), 0))->others.empty());
}

TEST(Planner, RanksThatShareCoresExchangeAddressesFromMoreOn) {
  PlannerOptions options = with_direct();
  options.direct_bytes_min = kDirectBytesMin;
  const auto exchanges = [&](Planner planner, std::size_t kib) {
    return (*planner.plan(all_reduce(kib << 10), 0))->settings.direct;
  };
  EXPECT_TRUE(exchanges(make("2", 2, options), 16));
  EXPECT_FALSE(exchanges(neighbours_first(8, options), 16));
  EXPECT_TRUE(exchanges(neighbours_first(8, options), 32));
}

// What exchanges addresses is cut otherwise, which may be worth it also where none can be given.
TEST(Planner, PlansThatAddressAreTriedForPlainMemory) {
  Planner planner = neighbours_first(8);
  const auto addressing = [&](std::size_t bytes) {
    const auto plan = *planner.plan(all_reduce(bytes), 0);
    const auto& others = plan->plain->others;
    EXPECT_LT(others.size(), 6U) << "a call's word has room for so many";
    return std::count_if(others.begin(), others.end(),
                         [](const auto& other) { return other->settings.direct; });
  };
  EXPECT_EQ(addressing(128 * 1024), 0);
  EXPECT_EQ(addressing(256 * 1024), 2);
  const auto plan = *planner.plan(all_reduce(256 * 1024), 0);
  const auto& others = plan->plain->others;
  EXPECT_TRUE(std::any_of(others.begin(), others.end(), [&](const auto& other) {
    return other->algorithm == plan->algorithm && !other->settings.direct;
  })) << "what is best between addresses, through queues";
}

// Those of the algorithms that are the quickest through queues, and none that is slow there.
TEST(Planner, WhatIsQuickThroughQueuesIsTriedAsBetweenAddresses) {
  for (const int ranks : {6, 7, 8, 9, 10, 12, 16, 24})
    for (const bool ordered : {false, true})
      for (const std::size_t bytes : {kMiB / 4, kMiB / 2, kMiB}) {
        SCOPED_TRACE(std::to_string(ranks) + (ordered ? " ranks in order, " : " ranks, ") +
                     std::to_string(bytes));
        Planner planner = neighbours_first(ranks);
        PlanQuery query = all_reduce(bytes);
        if (ordered) query.form = rank_tree_form(DataType::float32);
        const auto plain = (*planner.plan(query, 0))->plain;
        ASSERT_NE(plain, nullptr);
        std::set<std::string> through_queues = {plain->algorithm};
        std::set<std::string> between_addresses;
        for (const auto& other : plain->others)
          (other->settings.direct ? between_addresses : through_queues).insert(other->algorithm);
        EXPECT_TRUE(between_addresses.contains(plain->algorithm));
        for (const std::string& algorithm : between_addresses)
          EXPECT_TRUE(through_queues.contains(algorithm)) << algorithm;
      }
}

// Of some sizes, and of what is in that order only.
TEST(Planner, PlainMemoryHasAPlanInOrder) {
  for (const int ranks : {4, 8}) {
    Planner planner = neighbours_first(ranks);
    PlanQuery query = all_reduce(kMiB);
    query.form = rank_tree_form(DataType::float32);
    const auto plan = *planner.plan(query, 0);
    ASSERT_NE(plan->plain, nullptr) << ranks;
    EXPECT_EQ(plan->plain->algorithm, "direct");
    EXPECT_FALSE(plan->plain->settings.direct);
    query.count = 16 * kMiB / sizeof(float);
    EXPECT_EQ((*planner.plan(query, 0))->plain, nullptr) << ranks;
    // What is tried need not be known.
    query.count = (std::size_t{64} << 10) / sizeof(float);
    const auto small = *planner.plan(query, 0);
    ASSERT_EQ(small->plain != nullptr, ranks == 8) << "4 ranks go through queues anyway";
    EXPECT_TRUE(ranks == 4 || !small->plain->others.empty());
  }
}

}  // namespace
}  // namespace tutti::collectives
