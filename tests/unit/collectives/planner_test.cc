// The planner: choices, limits, errors and reasons.
#include "collectives/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/explain.hpp"
#include "collectives/lowering.hpp"
#include "tutti/topology.hpp"
#include "unit/collectives/planners.hpp"

namespace tutti::collectives {
namespace {

using ::testing::HasSubstr;

PlannerOptions for_gpus() {
  PlannerOptions options = with_direct();
  options.channel_count = 8;
  options.frame_bytes_max = 512 * 1024;
  return options;
}

TEST(Planner, SmallIsStagedAndLargeIsDirectInSharedMemory) {
  for (const int ranks : {2, 4, 9}) {
    Planner planner = make("1x9", ranks, with_direct());
    const auto small = planner.plan(all_reduce(8), 0);
    ASSERT_TRUE(small.ok());
    EXPECT_EQ((*small)->algorithm, ranks == 4 ? "one_shot" : "doubling");
    EXPECT_FALSE((*small)->settings.direct);
    for (const std::size_t bytes : {64 * 1024ul, kMiB, 64 * kMiB}) {
      const auto large = planner.plan(all_reduce(bytes), 0);
      ASSERT_TRUE(large.ok());
      EXPECT_EQ((*large)->algorithm, "direct");
      EXPECT_TRUE((*large)->settings.direct);
    }
  }
}

TEST(Planner, HierarchicalBeatsFlatAlgorithmsAcrossNodes) {
  Planner planner = make("4x8 nvlink=450 nic=50", 32, for_gpus());
  const Explanation explanation = *planner.explain(all_reduce(64 * kMiB));
  const Candidate& best = explanation.candidates.front();
  EXPECT_EQ(best.algorithm, "hierarchical");
  EXPECT_EQ(best.groups, GroupSizes(8));
  EXPECT_GT(find(explanation, "ring")->predicted_us, 5 * best.predicted_us);
  EXPECT_GT(find(explanation, "direct")->predicted_us, 5 * best.predicted_us);
  EXPECT_THAT(find(explanation, "ring")->limited_by, HasSubstr("nic"));
  EXPECT_LT(best.predicted_us, 2 * explanation.bound_us());
}

TEST(Planner, NamesTheSlowLink) {
  TopologyBuilder builder;
  const VertexId node = builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  const VertexId hub = builder.add_vertex({VertexKind::gpu_switch, "switch", node, {}});
  std::vector<VertexId> gpus;
  for (int i = 0; i < 4; ++i) {
    gpus.push_back(builder.add_vertex({VertexKind::gpu, "gpu" + std::to_string(i), node, {}}));
    Link link{LinkKind::nvlink, gpus.back(), hub, 100, 400, 400, false, LinkSource::given};
    if (i == 2) link.bandwidth_ba = 20;  // it can send quickly and receive slowly
    builder.add_link(link);
  }
  Planner planner(*std::move(builder).build(), gpus, for_gpus());
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
    const Explanation explanation = *planner.explain({collective, 16 * kMiB});
    for (const Candidate& candidate : explanation.candidates) {
      if (!candidate.not_possible.empty()) continue;
      EXPECT_THAT(candidate.limited_by, HasSubstr("switch -> gpu2 (20 GB/s)"))
          << candidate.algorithm;
    }
  }
}

TEST(Planner, EveryCollectiveHasAPlanForEveryRoot) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33}) {
    Planner planner = make("1x33", ranks, with_direct());
    for (const Collective collective : kAllCollectives) {
      const bool rooted = has_root(collective) || collective == Collective::send_recv;
      for (Rank root = 0; root < (rooted ? ranks : 1); ++root) {
        for (const std::size_t count : {0ul, 1ul, 100000ul}) {
          const PlanQuery query{collective, count, DataType::float64, root};
          const auto plan = planner.plan(query, ranks - 1);
          ASSERT_TRUE(plan.ok()) << to_string(collective) << " " << ranks << " " << root << ": "
                                 << plan.status().message();
          EXPECT_EQ((*plan)->program->rank, ranks - 1);
          EXPECT_EQ((*plan)->program->shape.ranks, ranks);
          EXPECT_EQ((*plan)->program->shape.root, root);
        }
      }
    }
  }
}

TEST(Planner, AllRanksAgreeAndChoicesStay) {
  Planner one = make("2x4 nic=10", 8, with_direct());
  Planner other = make("2x4 nic=10", 8, with_direct());
  // In another order, and after other sizes: prices must not depend on what was asked before.
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 4; bytes <= 16 * kMiB; bytes *= 2) sizes.push_back(bytes);
  std::vector<std::uint64_t> hashes;
  for (const std::size_t bytes : sizes) hashes.push_back((*one.plan(all_reduce(bytes), 0))->hash);
  for (std::size_t i = sizes.size(); i-- > 0;)
    for (Rank rank = 0; rank < 8; ++rank)
      EXPECT_EQ((*other.plan(all_reduce(sizes[i]), rank))->hash, hashes[i]) << sizes[i];
  const auto again = one.plan(all_reduce(kMiB), 3);
  EXPECT_EQ(*again, *one.plan(all_reduce(kMiB), 3));  // the very same plan
}

TEST(Planner, MoreBytesTakeNoLess) {
  for (const char* line : {"2", "1x5", "2x4 nic=10", "2x8 nvlink=450 nic=50"}) {
    const int ranks = static_cast<int>(seats(*parse_synthetic_topology(line)).size());
    Planner planner = make(line, ranks, for_gpus());
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                        Collective::broadcast, Collective::all_to_all}) {
      double before = 0;
      for (std::size_t count = 1; count <= 16 * kMiB; count *= 4) {
        const Explanation explanation = *planner.explain({collective, count});
        const double now = explanation.candidates.front().predicted_us;
        EXPECT_GE(now, before) << line << " " << to_string(collective) << " " << count;
        before = now;
      }
    }
  }
}

TEST(Planner, AllProcessorsWorkForTheRoot) {
  for (const int ranks : {2, 3, 5, 8})
    for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
      Planner planner = make(std::to_string(ranks).c_str(), ranks, with_direct());
      for (const std::size_t bytes : {64 * 1024ul, kMiB, 64 * kMiB}) {
        const Explanation explanation = *planner.explain({collective, bytes / 4});
        EXPECT_EQ(explanation.candidates.front().algorithm, "cooperative");
        EXPECT_TRUE(explanation.candidates.front().settings.direct);
      }
      // Of several messages instead of one small calls have nothing.
      const Explanation small = *planner.explain({collective, 2});
      EXPECT_NE(small.candidates.front().algorithm, "cooperative");
    }
}

// What several channels would share must be worth a message of its own.
TEST(Planner, SmallCallsTravelWhole) {
  for (const char* line : {"2", "4", "1x8"}) {
    Planner planner = make(line, 2, for_gpus());
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                        Collective::broadcast, Collective::all_to_all})
      for (const std::size_t bytes : {8ul, 256ul, 512ul, 1024ul, 2048ul, 4096ul}) {
        const auto plan = planner.plan({collective, bytes / 4}, 0);
        ASSERT_TRUE(plan.ok());
        EXPECT_EQ((*plan)->settings.channels, 1) << to_string(collective) << " " << bytes;
      }
  }
}

// Every wait of a rank hands the core over to another one.
// Also where the model takes two pieces for a thousandth quicker.
TEST(Planner, SmallCallsAreNotCutForNothing) {
  Planner planner = make("2", 2, with_direct());
  const PlanQuery query{Collective::broadcast, 256};
  const Explanation explanation = *planner.explain(query);
  const Candidate* cut = find(explanation, "cooperative");
  const Candidate* whole = find(explanation, "direct");
  ASSERT_TRUE(cut != nullptr && whole != nullptr);
  ASSERT_LT(std::abs(cut->predicted_us / whole->predicted_us - 1), 0.01) << "the test's premise";
  EXPECT_EQ((*planner.plan(query, 0))->algorithm, "direct");
  EXPECT_EQ((*planner.plan(query, 0))->hash, (*planner.plan(query, 1))->hash);
}

// Longer calls share out the data; where buffers can be addressed, only up to what is quicker
// through queues.
TEST(Planner, PairsThatShareOutLeadInTurn) {
  PlannerOptions options = with_direct();
  options.frame_bytes_max = 129 * 1024;
  options.slice_bytes_max = 128 * 1024;
  Planner planner = neighbours_first(4, options);
  for (const std::size_t kib : {16UL, 32UL, 64UL, 96UL, 128UL, 256UL, 512UL}) {
    SCOPED_TRACE(kib);
    PlanQuery query = all_reduce(kib << 10);
    for (const bool in_order : {false, true}) {
      const std::string wanted = in_order ? "leaders_in_order_in_turn" : "leaders_direct_in_turn";
      if (in_order) query.form = rank_tree_form(DataType::float32);
      const auto plan = *planner.plan(query, 1);
      EXPECT_EQ(plan->algorithm == wanted, kib <= 64) << plan->algorithm;
      EXPECT_EQ(plan->odd != nullptr, kib <= 64);
      const bool plain = plan->plain != nullptr && plan->plain->algorithm == wanted;
      EXPECT_EQ(plain, kib > 64 && kib <= 256);
      if (plain) {
        EXPECT_FALSE(plan->plain->settings.direct);
        EXPECT_NE(plan->plain->odd, nullptr);
      }
    }
  }
}

// A plan for calls of even numbers and one for odd ones, where pairs of ranks share a core.
TEST(Planner, PairsLeadInTurn) {
  Planner planner = neighbours_first(4);
  const auto plan = *planner.plan(all_reduce(4 << 10), 1);
  ASSERT_EQ(plan->algorithm, "leaders_in_turn");
  ASSERT_NE(plan->odd, nullptr);
  EXPECT_FALSE(plan->settings.direct);
  EXPECT_EQ(plan->program->peers, (std::vector<Rank>{0, 2})) << "it gives, and hears two leaders";
  EXPECT_EQ(plan->odd->peers, (std::vector<Rank>{0, 2, 3})) << "it leads, and tells all";
  EXPECT_EQ(plan->hash, (*planner.plan(all_reduce(4 << 10), 0))->hash);
  EXPECT_EQ((*planner.plan(all_reduce(kMiB), 1))->odd, nullptr);
  EXPECT_NE((*planner.plan(all_reduce(64 << 10), 1))->algorithm, "leaders_in_turn");
  EXPECT_EQ((*neighbours_first(8).plan(all_reduce(4 << 10), 1))->odd, nullptr) << "no pairs";
  EXPECT_EQ((*make("1x4", 4, with_direct()).plan(all_reduce(8 << 10), 1))->odd, nullptr);
  PlanQuery ordered = all_reduce(4 << 10);
  ordered.form = rank_tree_form(DataType::float32);
  EXPECT_EQ((*planner.plan(ordered, 0))->algorithm, "leaders_in_turn") << "pairs are a tree";
  PlannerOptions forced = with_direct();
  forced.algorithm = "leaders_in_turn";
  EXPECT_NE((*neighbours_first(4, forced).plan(all_reduce(64 << 10), 0))->odd, nullptr);
  forced.lowering = Lowering::direct;
  EXPECT_EQ((*neighbours_first(4, forced).plan(all_reduce(64 << 10), 0))->odd, nullptr);
  EXPECT_EQ(neighbours_first(8, forced).plan(all_reduce(8 << 10), 0).status().code(),
            StatusCode::unsupported);
}

// Leaders that keep the order of ranks are chosen where it is asked for, or they are.
TEST(Planner, OrderIsKeptWhereItIsAskedFor) {
  PlanQuery query = all_reduce(64 << 10);
  EXPECT_NE((*neighbours_first(4).plan(query, 0))->algorithm, "leaders_in_order");
  query.form = rank_tree_form(DataType::float64);
  EXPECT_EQ((*neighbours_first(4).plan(query, 0))->algorithm, "leaders_in_order_in_turn");
  EXPECT_EQ((*neighbours_first(8).plan(query, 0))->algorithm, "leaders_in_order");
  PlannerOptions forced = with_direct();
  forced.algorithm = "leaders_in_order";
  EXPECT_EQ((*neighbours_first(4, forced).plan(all_reduce(64 << 10), 0))->algorithm,
            "leaders_in_order");
}

TEST(Planner, RanksThatShareCoresWaitOnce) {
  for (const int ranks : {4, 8}) {
    Planner planner = make("2", ranks, with_direct());
    EXPECT_EQ((*planner.plan(all_reduce(8), 0))->algorithm, "one_shot");
  }
}

// Who leads in turn tells what a frame holds, at once; others cut it as they are told to.
TEST(Planner, OnlyLeadersInTurnFillFrames) {
  PlannerOptions options = with_direct();
  options.frame_bytes_max = 129 * 1024;
  options.slice_bytes_max = 128 * 1024;
  Planner planner = neighbours_first(4, options);
  const auto plain = (*planner.plan(all_reduce(kMiB / 4), 0))->plain;
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->algorithm, "leaders_direct_in_turn");
  EXPECT_EQ(plain->settings.slice_bytes, 129U * 1024);
  for (const std::size_t bytes : {kMiB, 64 * kMiB}) {
    const auto plan = *planner.plan(all_reduce(bytes), 0);
    EXPECT_LE(plan->settings.slice_bytes, 128U * 1024);
    EXPECT_LE(plan->plain->settings.slice_bytes, 128U * 1024);
  }
}

// Where only some memory can be addressed, small calls are not worth finding out.
TEST(Planner, SmallBlocksTravelStagedUnlessToldOtherwise) {
  PlannerOptions options = with_direct();
  options.direct_bytes_min = 16 * 1024;
  Planner planner = make("2", 2, options);
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{8192}, std::size_t{16380}})
    EXPECT_FALSE((*planner.plan(all_reduce(bytes), 0))->settings.direct) << bytes;
  EXPECT_TRUE((*planner.plan(all_reduce(kMiB), 0))->settings.direct);
  for (const std::size_t bytes : {std::size_t{16384}, std::size_t{32764}})
    EXPECT_FALSE((*planner.plan({Collective::broadcast, bytes / 4}, 0))->settings.direct)
        << bytes << ": its plain memory would pay for the exchange";
  EXPECT_TRUE((*planner.plan(all_reduce(16384), 0))->settings.direct);
  EXPECT_TRUE((*planner.plan({Collective::broadcast, 8192}, 0))->settings.direct);
  options.lowering = Lowering::direct;
  Planner told = make("2", 2, options);
  EXPECT_TRUE((*told.plan(all_reduce(8192), 0))->settings.direct);
}

// Between two cores, a message that goes at once spares a call what it takes to be set up, and what
// is cut is not cut to pieces.
TEST(Planner, ShortDataOfAPairGoAtOnceAndWhole) {
  PlannerOptions options = with_direct();
  options.lowering = Lowering::staged;
  options.memory_shared = true;
  options.frame_bytes_max = options.slice_bytes_max = 256 * 1024;
  options.slice_bytes_min = 16 * 1024;
  const auto planned = [&](Collective collective, std::size_t bytes) {
    Planner planner = make("2 memory=10 memory_ns=75", 2, options);
    return *planner.plan({collective, bytes / 4}, 0);
  };
  for (const std::size_t bytes : {4096U, 8192U, 12288U, 16384U})
    EXPECT_EQ(planned(Collective::broadcast, bytes)->algorithm, "direct") << bytes;
  for (const std::size_t bytes : {8192U, 12288U, 16384U, 24576U})
    EXPECT_EQ(planned(Collective::all_reduce, bytes)->algorithm, "doubling") << bytes;
  EXPECT_EQ(planned(Collective::all_reduce, 40 * 1024)->algorithm, "direct")
      << "that goes at once nowhere";
  EXPECT_EQ(planned(Collective::broadcast, 32 * 1024)->settings.slice_bytes, 16U * 1024)
      << "it is cut";
}

// The model and the bounds tell the same story: nothing is predicted to be quicker than possible.
TEST(Planner, NothingBeatsTheBound) {
  for (const char* line :
       {"2", "1x7", "3x2 nic=5", "2x8 nvlink=450 nic=50", "1x4 pcie=20 numa=2"}) {
    const int ranks = static_cast<int>(seats(*parse_synthetic_topology(line)).size());
    Planner planner = make(line, ranks, for_gpus());
    for (const Collective collective : kAllCollectives) {
      for (const std::size_t count : {1ul, 1000ul, 1000000ul, 30000000ul}) {
        if (collective == Collective::barrier && count > 1) continue;
        const Explanation explanation =
            *planner.explain({collective, count, DataType::float32, ranks - 1});
        for (const Candidate& candidate : explanation.candidates) {
          if (!candidate.not_possible.empty()) continue;
          EXPECT_GE(candidate.predicted_us * 1.0001 + 0.001, explanation.bound_us())
              << line << " " << to_string(collective) << " " << count << " " << candidate.algorithm;
        }
      }
    }
  }
}

TEST(Planner, ForcedOptionsAreHonoured) {
  PlannerOptions options = with_direct();
  options.algorithm = "ring";
  options.lowering = Lowering::direct;
  options.channel_count = 4;
  options.channels = 3;
  options.slice_bytes = 8192;
  Planner planner = make("4", 4, options);
  const auto plan = planner.plan(all_reduce(kMiB), 1);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->algorithm, "ring");
  EXPECT_EQ((*plan)->settings, (PlanSettings{3, 8192, true}));
  // Collectives that do not have it do not care.
  EXPECT_TRUE(planner.plan({Collective::barrier, 1}, 0).ok());
  EXPECT_TRUE(planner.plan({Collective::gather, 8}, 0).ok());
  options.lowering = Lowering::staged;
  Planner staged = make("4", 4, options);
  EXPECT_FALSE((*staged.plan(all_reduce(64 * kMiB), 0))->settings.direct);
  // Slices are never larger than what the transport carries.
  options.slice_bytes = kMiB;
  Planner large = make("4", 4, options);
  EXPECT_EQ((*large.plan(all_reduce(64 * kMiB), 0))->settings.slice_bytes, 65536u);
}

TEST(Planner, WhatCannotBeSaysWhatToDo) {
  PlannerOptions options;
  options.algorithm = "rign";
  const auto unknown = make("4", 4, options).plan(all_reduce(8), 0);
  EXPECT_EQ(unknown.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("halving_doubling"));

  options.algorithm = "hierarchical";
  const auto flat = make("4", 4, options).plan(all_reduce(8), 0);
  EXPECT_EQ(flat.status().code(), StatusCode::unsupported);
  EXPECT_THAT(flat.status().message(), HasSubstr("two nodes"));

  options = {};
  options.lowering = Lowering::direct;
  const auto apart = make("4", 4, options).plan(all_reduce(8), 0);
  EXPECT_EQ(apart.status().code(), StatusCode::unsupported);
  EXPECT_THAT(apart.status().message(), HasSubstr("staged"));

  options = {};
  options.channels = 5;
  options.channel_count = 2;
  EXPECT_EQ(make("4", 4, options).plan(all_reduce(8), 0).status().code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(make("4", 4).plan({Collective::broadcast, 1, DataType::int32, 4}, 0).status().code(),
            StatusCode::invalid_argument);
}

TEST(Planner, SlicesThatHoldNoElementMakeAnAlgorithmImpossible) {
  PlannerOptions options;
  options.slice_bytes = 64;  // halving and doubling moves 32 chunks of 8 bytes at once
  Planner planner = make("33", 33, options);
  const Explanation explanation =
      *planner.explain({Collective::all_reduce, 1000, DataType::float64});
  EXPECT_THAT(find(explanation, "halving_doubling")->not_possible, HasSubstr("64 bytes"));
  EXPECT_TRUE(planner.plan({Collective::all_reduce, 1000, DataType::float64}, 0).ok());
}

TEST(Planner, HugeSchedulesAreNotPriced) {
  Planner planner = make("600", 600);
  const Explanation explanation = *planner.explain(all_reduce(kMiB));
  EXPECT_THAT(find(explanation, "ring")->not_possible, HasSubstr("too many to price"));
  EXPECT_TRUE(explanation.candidates.front().not_possible.empty());
  EXPECT_GT(explanation.candidates.front().predicted_us, 0);
  // Who insists gets it.
  PlannerOptions options;
  options.algorithm = "ring";
  Planner forced = make("600", 600, options);
  EXPECT_EQ((*forced.plan(all_reduce(kMiB), 0))->algorithm, "ring");
}

TEST(Planner, UnevenNodesHaveNoTwoLevels) {
  Topology topology = *parse_synthetic_topology("2x4 nic=10");
  const std::vector<VertexId> all = seats(topology);
  const std::vector<VertexId> uneven(all.begin(), all.begin() + 7);
  Planner planner(topology, uneven, {});
  EXPECT_FALSE(find(*planner.explain(all_reduce(8)), "hierarchical")->not_possible.empty());
  // Equal nodes whose ranks alternate neither.
  Planner mixed(topology, {all[0], all[4], all[1], all[5]}, {});
  EXPECT_FALSE(find(*mixed.explain(all_reduce(8)), "hierarchical")->not_possible.empty());
}

}  // namespace
}  // namespace tutti::collectives
