// tuner_plugin_test.cc: tuner plugins: how they are found, what they are told, what becomes of
// their answers, and that ranks whose plugins differ hear of it.
#include "runtime/tuner_plugin.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "processes.hpp"
#include "runtime/tuner_opinion.hpp"
#include "tutti/topology.hpp"

namespace tutti::runtime {
namespace {

using collectives::Explanation;
using collectives::Planner;
using collectives::PlannerOptions;
using collectives::PlanQuery;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::on_processes;

constexpr int kAlgorithms = tuner_abi::kAlgorithms;

Planner make_planner(int ranks, PlannerOptions options = {}) {
  Topology topology = *parse_synthetic_topology("1x9");
  std::vector<VertexId> placement = default_placement(topology, ranks);
  options.channel_count = 4;
  return Planner(std::move(topology), std::move(placement), std::move(options));
}

// What the kit's tuner (tests/kit/tuner_plugin) shall want; empty: nothing.
struct Wish {
  const char* algorithm = "";
  const char* channels = "";
  const char* fail = "";
  const char* protocol = "";
};

void set_wish(const Wish& wish) {
  ::setenv("KIT_TUNER_ALGORITHM", wish.algorithm, 1);
  ::setenv("KIT_TUNER_CHANNELS", wish.channels, 1);
  ::setenv("KIT_TUNER_FAIL", wish.fail, 1);
  ::setenv("KIT_TUNER_PROTOCOL", wish.protocol, 1);
}

class TunerPlugins : public ::testing::Test {
 protected:
  void SetUp() override { set_wish({}); }
  void TearDown() override {
    set_wish({});
    ::unsetenv("NCCL_TUNER_PLUGIN");
    ::unsetenv("NCCL_NET_PLUGIN");
  }
};

// One rank's explanation of a call.
Explanation explain(Planner& planner, Collective collective, std::size_t count = 100'000) {
  return planner.explain({collective, count}).value();
}

float lowest(const CostTable& costs, int row) {
  return *std::min_element(costs[static_cast<std::size_t>(row)].begin(),
                           costs[static_cast<std::size_t>(row)].end());
}

// ---- What is told, and what an answer means ----

TEST(TunerOpinion, TheTableHasARowForEachAlgorithmLikeTheirs) {
  for (const int ranks : {2, 3, 4, 7, 8}) {
    Planner planner = make_planner(ranks);
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast, Collective::reduce}) {
      const Explanation explanation = explain(planner, collective);
      const CostTable costs = cost_table(explanation);
      for (int row = 0; row < kAlgorithms; ++row) {
        const auto& entries = costs[static_cast<std::size_t>(row)];
        double expected = -1;
        for (const auto& each : explanation.candidates)
          if (each.not_possible.empty() && tuner_row(collective, each.algorithm) == row)
            expected = expected < 0 ? each.predicted_us : std::min(expected, each.predicted_us);
        for (const float cost : entries) EXPECT_FLOAT_EQ(cost, static_cast<float>(expected));
      }
      EXPECT_GT(lowest(costs, tuner_abi::kRing), 0) << to_string(collective);
      EXPECT_EQ(lowest(costs, 4), -1) << "there is no NVLS";
    }
  }
}

TEST(TunerOpinion, OnlyWhatTunersKnowIsAsked) {
  EXPECT_EQ(tuner_function(Collective::broadcast), tuner_abi::broadcast);
  EXPECT_EQ(tuner_function(Collective::all_reduce), tuner_abi::all_reduce);
  EXPECT_EQ(static_cast<int>(*tuner_function(Collective::all_reduce)), 4);
  for (const Collective collective : {Collective::gather, Collective::scatter, Collective::barrier,
                                      Collective::all_to_all, Collective::send_recv})
    EXPECT_FALSE(tuner_function(collective));
}

TEST(TunerOpinion, ATableThatComesBackAsItWentIsNone) {
  Planner planner = make_planner(4);
  const Explanation explanation = explain(planner, Collective::all_reduce);
  EXPECT_FALSE(opinion(explanation, {cost_table(explanation), 0}, 4));
}

TEST(TunerOpinion, TheLowestEntryWins) {
  Planner planner = make_planner(5);
  const Explanation explanation = explain(planner, Collective::all_reduce);
  const CostTable costs = cost_table(explanation);
  for (const auto& [row, name] :
       {std::pair(tuner_abi::kRing, "ring"), std::pair(tuner_abi::kTree, "tree")})
    for (std::size_t protocol = 0; protocol < 3; ++protocol) {
      TunerAnswer answer{costs, 0};
      answer.costs[static_cast<std::size_t>(row)][protocol] = 0;
      const auto wanted = opinion(explanation, answer, 4);
      ASSERT_TRUE(wanted);
      EXPECT_EQ(wanted->algorithm, name);
      EXPECT_TRUE(planner.plan_as({Collective::all_reduce, 100'000}, *wanted, 0).ok());
    }
}

TEST(TunerOpinion, WhatCannotBeHadAndWhatIsNoNumberDoesNotCount) {
  Planner planner = make_planner(5);
  const Explanation explanation = explain(planner, Collective::all_reduce);
  const CostTable costs = cost_table(explanation);
  for (const float odd : {-1.0F, -100.0F, NAN, -INFINITY}) {
    TunerAnswer answer{costs, 0};
    answer.costs[3].fill(0);  // not available, whatever the plugin says
    answer.costs[tuner_abi::kRing].fill(odd);
    answer.costs[tuner_abi::kTree][1] = 0.001F;
    EXPECT_EQ(opinion(explanation, answer, 4)->algorithm, "tree") << odd;
  }
}

// Also where the planner's choice is not the one that the model finds cheapest.
TEST(TunerOpinion, WhatSaysNothingLeavesWhatWasMeasured) {
  Planner planner = make_planner(5);
  Explanation explanation = explain(planner, Collective::all_reduce);
  std::swap(explanation.candidates[0], explanation.candidates[1]);
  ASSERT_TRUE(explanation.candidates[0].not_possible.empty());
  ASSERT_GT(explanation.candidates[0].predicted_us, explanation.candidates[1].predicted_us);
  explanation.candidates[1].algorithm = explanation.candidates[0].algorithm;
  explanation.candidates[1].settings.direct = true;
  TunerAnswer answer{cost_table(explanation), 0};
  answer.costs[4].fill(0);
  EXPECT_FALSE(opinion(explanation, answer, 4)) << "what is not available is no opinion";
  answer.channels = 3;
  const auto wanted = opinion(explanation, answer, 4);
  ASSERT_TRUE(wanted);
  EXPECT_EQ(wanted->algorithm, explanation.candidates[0].algorithm);
  EXPECT_EQ(wanted->settings.channels, 3);
  EXPECT_EQ(wanted->settings.direct, explanation.candidates[0].settings.direct);
}

// A plugin may also make dear what it does not want; then the planner's others compete.
TEST(TunerOpinion, WhatWasMadeDearIsNotTaken) {
  Planner planner = make_planner(9);
  const Explanation explanation = explain(planner, Collective::all_gather, 1'000'000);
  TunerAnswer answer{cost_table(explanation), 0};
  for (const int row : {tuner_abi::kRing, tuner_abi::kPat})
    answer.costs[static_cast<std::size_t>(row)].fill(1e9F);
  const auto wanted = opinion(explanation, answer, 4);
  ASSERT_TRUE(wanted);
  EXPECT_FALSE(tuner_row(Collective::all_gather, wanted->algorithm)) << wanted->algorithm;
}

TEST(TunerOpinion, ChannelsWithinWhatThereIs) {
  Planner planner = make_planner(4);
  const Explanation explanation = explain(planner, Collective::all_reduce);
  const CostTable costs = cost_table(explanation);
  for (const auto& [asked, given] : {std::pair(1, 1), std::pair(3, 3), std::pair(64, 4)}) {
    const auto wanted = opinion(explanation, {costs, asked}, 4);
    ASSERT_TRUE(wanted);
    EXPECT_EQ(wanted->settings.channels, given);
    EXPECT_EQ(wanted->algorithm, explanation.candidates[0].algorithm);
  }
  EXPECT_FALSE(opinion(explanation, {costs, -3}, 4));
  EXPECT_FALSE(opinion(explanation, {costs, 3}, 0)) << "the user has settled their number";
}

TEST(TunerOpinion, AnAnswerByNameIsOneOfTheTable) {
  CostTable costs;
  for (auto& row : costs) row.fill(5);
  EXPECT_EQ(named_answer(costs, 1, 2, 3).costs[1][2], 0);
  EXPECT_EQ(named_answer(costs, 1, 2, 3).channels, 3);
  for (const auto& [algorithm, protocol] :
       {std::pair(-1, 0), std::pair(7, 0), std::pair(0, -1), std::pair(0, 3)})
    EXPECT_EQ(named_answer(costs, algorithm, protocol, 0).costs, costs);
}

// ---- Finding a library ----

std::string name_of(const base::Environment& environment, bool net_plugin = false) {
  const auto found = find_tuner(environment, net_plugin, base::LogLevel::warn);
  if (!found.ok()) return found.status().message();
  return *found ? (*found)->name() : "nothing";
}

TEST_F(TunerPlugins, AreFoundByName) {
  EXPECT_EQ(name_of({{"NCCL_TUNER_PLUGIN", "kit_v2"}}), "kit v2");
  EXPECT_EQ(name_of({{"NCCL_TUNER_PLUGIN", "libnccl-tuner-kit_v3.so"}}), "kit v3");
  EXPECT_EQ(name_of({{"NCCL_TUNER_PLUGIN", "kit_v4"}}), "kit v4");
  EXPECT_EQ(name_of({{"NCCL_TUNER_PLUGIN", "kit_v5"}}), "kit v5");
  EXPECT_EQ(name_of({{"NCCL_TUNER_PLUGIN", "none"}}), "nothing");
  EXPECT_EQ(name_of({}), "nothing");
}

TEST_F(TunerPlugins, MayStandInTheNetPluginsLibrary) {
  EXPECT_EQ(name_of({{"NCCL_NET_PLUGIN", "kit_tuned"}}, true), "kit v5");
  EXPECT_EQ(name_of({{"NCCL_NET_PLUGIN", "no_such,kit_v8,kit_tuned"}}, true), "kit v5");
  EXPECT_EQ(name_of({{"NCCL_NET_PLUGIN", "kit_v8"}}, true), "nothing");
  EXPECT_EQ(name_of({{"NCCL_NET_PLUGIN", "none"}}, true), "nothing");
  EXPECT_EQ(name_of({{"NCCL_NET_PLUGIN", "kit_tuned"}}, false), "nothing");
  EXPECT_EQ(name_of({{"NCCL_NET_PLUGIN", "kit_tuned"}, {"NCCL_TUNER_PLUGIN", "none"}}, true),
            "nothing");
}

TEST_F(TunerPlugins, WhatCannotBeUsedIsSaid) {
  EXPECT_THAT(name_of({{"NCCL_TUNER_PLUGIN", "no_such"}}),
              AllOf(HasSubstr("NCCL_TUNER_PLUGIN=no_such"), HasSubstr("libnccl-tuner-no_such.so")));
  EXPECT_THAT(name_of({{"NCCL_TUNER_PLUGIN", "libnccl-net-kit_v8.so"}}),
              HasSubstr("without any of ncclTunerPlugin_v5"));
}

// ---- Planning ----

TunedPlanner tuned(const std::string& plugin, int channels_max = 4) {
  const auto found = find_tuner({{"NCCL_TUNER_PLUGIN", plugin}}, false, base::LogLevel::warn)
                         .value()
                         ->begin({1, 4, 1, 4, 4});
  EXPECT_TRUE(found.ok());
  return TunedPlanner(std::move(const_cast<Result<std::unique_ptr<Tuner>>&>(found)).value(),
                      channels_max);
}

TEST_F(TunerPlugins, OfEveryVersionForceAnAlgorithm) {
  for (const char* plugin : {"kit_v2", "kit_v3", "kit_v4", "kit_v5"})
    for (const auto& [row, name] : {std::pair("0", "tree"), std::pair("1", "ring")}) {
      set_wish({.algorithm = row, .channels = "2", .protocol = "0"});
      Planner planner = make_planner(4);
      TunedPlanner tuner = tuned(plugin);
      for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{100'000}})
        for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
          const auto plan = tuner.plan(planner, {collective, count}, 1);
          ASSERT_TRUE(plan.ok()) << plan.status().to_string();
          EXPECT_EQ((*plan)->algorithm, name) << plugin;
          EXPECT_EQ((*plan)->settings.channels, 2);
        }
    }
}

TEST_F(TunerPlugins, WithoutAWishLeaveThePlannerAlone) {
  for (const char* plugin : {"kit_v2", "kit_v3", "kit_v4", "kit_v5"})
    for (const Wish& wish : {Wish{}, Wish{.fail = "1"}, Wish{.algorithm = "4"}}) {
      set_wish(wish);
      Planner planner = make_planner(4);
      TunedPlanner tuner = tuned(plugin);
      for (const Collective collective : kAllCollectives) {
        const PlanQuery query{collective, 5000};
        EXPECT_EQ((*tuner.plan(planner, query, 0))->hash, (*planner.plan(query, 0))->hash)
            << plugin << " " << to_string(collective);
      }
    }
}

TEST_F(TunerPlugins, AreAskedOnceForEachCall) {
  set_wish({.algorithm = "0"});
  Planner planner = make_planner(4);
  TunedPlanner tuner = tuned("kit_v5");
  EXPECT_EQ((*tuner.plan(planner, {Collective::all_reduce, 5000}, 0))->algorithm, "tree");
  set_wish({.algorithm = "1"});
  EXPECT_EQ((*tuner.plan(planner, {Collective::all_reduce, 5000}, 0))->algorithm, "tree");
  EXPECT_EQ((*tuner.plan(planner, {Collective::all_reduce, 5001}, 0))->algorithm, "ring");
}

// Calls that differ in anything that makes a plan are asked about separately.
TEST_F(TunerPlugins, AreAskedAgainAboutOtherCalls) {
  set_wish({.algorithm = "0"});
  Planner planner = make_planner(4);
  TunedPlanner tuner = tuned("kit_v5");
  const PlanQuery query{Collective::reduce, 5000};
  EXPECT_EQ((*tuner.plan(planner, query, 0))->algorithm, "tree");
  set_wish({.algorithm = "1"});
  std::vector<PlanQuery> others(4, query);
  others[0].type = DataType::float64;
  others[1].root = 1;
  others[2].form = collectives::ReductionForm::tree;
  others[3].width = 2;
  for (const PlanQuery& other : others)
    EXPECT_EQ((*tuner.plan(planner, other, 0))->hash,
              (*tuned("kit_v5").plan(planner, other, 0))->hash);
  EXPECT_EQ((*tuner.plan(planner, others[0], 0))->algorithm, "ring");
  EXPECT_EQ((*tuner.plan(planner, query, 0))->algorithm, "tree");
}

TEST_F(TunerPlugins, KeepSoManyAnswersOnly) {
  Planner planner = make_planner(2);
  TunedPlanner tuner = tuned("kit_v5");
  EXPECT_EQ(tuner.memory_bytes(), 0U);
  std::size_t most = 0;
  for (std::size_t count = 1; count <= 600; ++count) {
    ASSERT_TRUE(tuner.plan(planner, {Collective::broadcast, count}, 0).ok());
    most = std::max(most, tuner.memory_bytes());
  }
  EXPECT_GT(tuner.memory_bytes(), 0U);
  EXPECT_LE(most, std::size_t{256} << 10);
  EXPECT_LT(tuner.memory_bytes(), most) << "they were forgotten, and made anew";
}

TEST_F(TunerPlugins, ThatCannotBeInitialisedSaySo) {
  set_wish({.fail = "2"});
  const auto plugin = find_tuner({{"NCCL_TUNER_PLUGIN", "kit_v5"}}, false, base::LogLevel::warn);
  EXPECT_THAT((*plugin)->begin({}).status().message(), HasSubstr("kit v5"));
}

// ---- Whole communicators ----

bool sums_by(Communicator& comm, const std::string& algorithm) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), static_cast<float>(comm.rank()));
  const auto report = comm.explain(Collective::all_reduce, values.size(), DataType::float32);
  if (!report.ok() || report->algorithm != algorithm || report->chosen_by != "tuner") return false;
  if (report->explanation.rfind("the tuner plugin takes " + algorithm, 0) != 0) return false;
  if (!comm.all_reduce(std::span<float>(values), ReduceOp::sum).ok()) return false;
  const auto n = static_cast<float>(comm.size());
  return values[0] == n * (n - 1) / 2 && values[999] == n * (n - 1) / 2 + n * 999;
}

TEST_F(TunerPlugins, DecideWhatRanksDo) {
  ::setenv("NCCL_TUNER_PLUGIN", "kit_v4", 1);
  for (const char* transport : {"shm", "tcp"})
    for (const auto& [row, name] : {std::pair("0", "tree"), std::pair("1", "ring")}) {
      set_wish({.algorithm = row});
      CommunicatorOptions options;
      options.transport = transport;
      const std::string algorithm = name;
      EXPECT_TRUE(
          on_processes(3, options, [&](Communicator& comm) { return sums_by(comm, algorithm); }))
          << transport << " " << name;
    }
}

TEST_F(TunerPlugins, BesidesANetPluginDecideToo) {
  ::setenv("NCCL_NET_PLUGIN", "kit_tuned", 1);
  set_wish({.algorithm = "1"});
  CommunicatorOptions options;
  options.transport = "net_plugin";
  EXPECT_TRUE(on_processes(4, options, [](Communicator& comm) { return sums_by(comm, "ring"); }));
}

TEST_F(TunerPlugins, ThatARankLacksAreAMismatchAtOnce) {
  CommunicatorOptions options;
  options.transport = "shm";
  const auto body = [](Communicator&) { return true; };
  const auto lacking = [](Rank rank) {
    ::setenv("NCCL_TUNER_PLUGIN", rank == 0 ? "kit_v5" : "none", 1);
  };
  EXPECT_FALSE(on_processes(2, options, body, lacking));
  const auto both = [](Rank) { ::setenv("NCCL_TUNER_PLUGIN", "kit_v5", 1); };
  EXPECT_TRUE(on_processes(2, options, body, both));
}

// Where a name is set for NCCL, there may be nothing for us.
TEST_F(TunerPlugins, ThatCannotBeFoundAreDoneWithout) {
  ::setenv("NCCL_TUNER_PLUGIN", "no_such", 1);
  CommunicatorOptions options;
  options.transport = "shm";
  EXPECT_TRUE(on_processes(2, options, [](Communicator& comm) {
    const auto report = comm.explain(Collective::all_reduce, 1000, DataType::float32);
    return report.ok() && report->chosen_by != "tuner";
  }));
}

TEST_F(TunerPlugins, YieldToTheUser) {
  ::setenv("NCCL_TUNER_PLUGIN", "kit_v5", 1);
  set_wish({.algorithm = "0"});
  CommunicatorOptions options;
  options.transport = "shm";
  options.algorithm = "ring";
  EXPECT_TRUE(on_processes(2, options, [](Communicator& comm) {
    const auto report = comm.explain(Collective::all_reduce, 1000, DataType::float32);
    return report.ok() && report->algorithm == "ring" && report->chosen_by != "tuner";
  }));
}

TEST_F(TunerPlugins, OfOneNameWithDifferentAnswersAreAMismatch) {
  ::setenv("NCCL_TUNER_PLUGIN", "kit_v5", 1);
  CommunicatorOptions options;
  options.transport = "shm";
  testing::SharedMemory memory(2 * sizeof(std::atomic<int>));
  const std::span<std::atomic<int>> codes = memory.as<std::atomic<int>>();
  const auto body = [&](Communicator& comm) {
    std::vector<float> values(1000);
    Status status;
    for (int i = 0; i < 3 && status.ok(); ++i)
      status = comm.all_reduce(std::span<float>(values), ReduceOp::sum);
    const auto rank = static_cast<std::size_t>(comm.rank());
    codes[rank] = 1 + static_cast<int>(status.code());
    // Who ends without closing is dead to the other, and a failed communicator cannot be closed.
    for (int i = 0; i < 10'000 && codes[1 - rank] == 0; ++i) ::usleep(1000);
    return true;
  };
  EXPECT_FALSE(on_processes(2, options, body,
                            [](Rank rank) { set_wish({.algorithm = rank == 0 ? "0" : "1"}); }));
  for (const auto& code : codes) EXPECT_EQ(code - 1, static_cast<int>(StatusCode::mismatch));
}

}  // namespace
}  // namespace tutti::runtime
