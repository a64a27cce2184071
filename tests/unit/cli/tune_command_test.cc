// `tutti tune`: what it makes of times, worlds that fail, and the way from the command to the
// planner. That times are good is nothing that a test can tell.
#include "cli/tune_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/machine.hpp"
#include "cli/plan_command.hpp"
#include "cli/tune_choose.hpp"
#include "cli/tune_measure.hpp"
#include "cli/tune_world.hpp"
#include "collectives/explain.hpp"
#include "runtime/tuning.hpp"
#include "unit/cli/command.hpp"

namespace tutti::cli {
namespace {

using collectives::TunedChoice;
using collectives::TunedTime;
using collectives::TunedUse;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_command;

constexpr Collective kReduce = Collective::all_reduce;
const TunedChoice kRing{"ring", {1, 4096, false}};
const TunedChoice kTree{"tree", {1, 4096, false}};

// ---- Choosing ----

TuneFindings findings_of(std::vector<TunedTime> times, std::vector<TunedUse> model) {
  TuneFindings findings;
  findings.place.key = {"shm", 2, 2, true};
  findings.place.times = std::move(times);
  findings.by_model = std::move(model);
  return findings;
}

TEST(TuneChoice, NothingMeasuredChoosesNothing) {
  EXPECT_TRUE(tune_winners(TuneFindings()).empty());
  EXPECT_TRUE(tune_uses({}, {}).empty());
  // The model had a choice, but no time came of it.
  EXPECT_TRUE(tune_winners(findings_of({}, {{kReduce, 8, kRing}})).empty());
}

TEST(TuneChoice, ModelsChoiceStaysUnlessAnotherIsClearlyBetter) {
  const auto best = [](double ring_us, double tree_us) {
    const auto winners = tune_winners(
        findings_of({{kReduce, 8, kRing, ring_us, {}}, {kReduce, 8, kTree, tree_us, {}}},
                    {{kReduce, 8, kRing}}));
    return winners.at(0).best.choice;
  };
  EXPECT_EQ(best(100, 200), kRing);
  EXPECT_EQ(best(100, 96), kRing);
  EXPECT_EQ(best(100, 90), kTree);
}

TEST(TuneChoice, BothKindsOfBuffersCount) {
  // Twice as quick on one kind, three times as slow on the other.
  const auto winners = tune_winners(findings_of(
      {{kReduce, 8, kRing, 100, 100}, {kReduce, 8, kTree, 50, 300}}, {{kReduce, 8, kRing}}));
  EXPECT_EQ(winners.at(0).best.choice, kRing);
}

TEST(TuneChoice, BordersLieWhereTimesCross) {
  const TuneFindings findings = findings_of({{kReduce, 1024, kRing, 1, {}},
                                             {kReduce, 1024, kTree, 2, {}},
                                             {kReduce, 4096, kRing, 4, {}},
                                             {kReduce, 4096, kTree, 2, {}},
                                             {kReduce, 65536, kTree, 20, {}},
                                             {Collective::broadcast, 1024, kTree, 1, {}}},
                                            {{kReduce, 1024, kRing},
                                             {kReduce, 4096, kRing},
                                             {kReduce, 65536, kTree},
                                             {Collective::broadcast, 1024, kTree}});
  const auto uses = tune_uses(tune_winners(findings), findings.place);
  ASSERT_EQ(uses.size(), 5U);
  EXPECT_EQ(uses[0], (TunedUse{kReduce, 0, kRing}));
  EXPECT_EQ(uses[1], (TunedUse{kReduce, 2048, kTree}));  // from 1024 to 4096 on, both double twice
  EXPECT_EQ(uses[2], (TunedUse{kReduce, 4 * 65536, {}}));  // what is larger nobody measured
  EXPECT_EQ(uses[3], (TunedUse{Collective::broadcast, 0, kTree}));
  EXPECT_EQ(uses[4], (TunedUse{Collective::broadcast, 4096, {}}));
}

TEST(TuneFit, FindsNumbersThatExplainTheTimes) {
  // A machine whose messages cost three times the model's defaults.
  collectives::TransportFigures truth;
  truth.transport = "shm";
  truth.send_ns = truth.receive_ns = 180;
  truth.latency_ns = 200;
  truth.bandwidth = 4;
  TuneFindings world = findings_of({}, {});
  world.message_us = 0.78;
  world.bytes_per_ns = 4;
  TunePredictor machine(world.place.key, &truth);
  for (const std::size_t bytes : {8U, 1024U, 65536U, 1U << 20})
    for (const TunedChoice& choice :
         {TunedChoice{"ring", {1, 131072, false}}, TunedChoice{"doubling", {1, 131072, false}},
          TunedChoice{"direct", {1, 131072, true}}})
      world.place.times.push_back({kReduce, bytes, choice, machine.us(kReduce, bytes, choice), {}});
  const TuneFit fit = fit_figures("shm", {world});
  EXPECT_GT(fit.error_before, 1.5);
  EXPECT_LT(fit.error_after, 1.1);
  EXPECT_EQ(fit.figures.transport, "shm");
}

TEST(TuneFit, WhatWouldPredictWorseIsLeftOut) {
  TuneFindings world = findings_of({}, {});
  world.message_us = 8000;  // of a busy machine; the times are the model's own
  world.bytes_per_ns = 0.1;
  TunePredictor model(world.place.key, nullptr);
  for (const std::size_t bytes : {8U, 1024U})
    world.place.times.push_back({kReduce,
                                 bytes,
                                 {"doubling", {1, 131072, false}},
                                 model.us(kReduce, bytes, {"doubling", {1, 131072, false}}),
                                 {}});
  const TuneFit fit = fit_figures("shm", {world});
  EXPECT_EQ(fit.figures.latency_ns, std::nullopt);
  EXPECT_NEAR(fit.error_after, 1, 0.01);
}

TEST(TuneCandidates, BeginWithTheModelsChoiceAndCanServe) {
  Topology topology = *parse_synthetic_topology("1x4");
  auto placement = default_placement(topology, 4);
  collectives::PlannerOptions options;
  options.direct_possible = true;
  options.channel_count = 2;
  collectives::Planner planner(std::move(topology), std::move(placement), options);
  for (const std::size_t count : {1U, 4096U, 1U << 20}) {
    const collectives::PlanQuery query{kReduce, count};
    const auto candidates = tune_candidates(planner, query, options);
    ASSERT_TRUE(candidates.ok());
    const auto first = planner.explain(query)->candidates.front();
    EXPECT_EQ(candidates->front(), (TunedChoice{first.algorithm, first.settings}));
    EXPECT_GE(candidates->size(), 2U);
    for (std::size_t i = 0; i < candidates->size(); ++i) {
      EXPECT_TRUE(planner.plan_as(query, (*candidates)[i], 0).ok());
      for (std::size_t k = 0; k < i; ++k) EXPECT_NE((*candidates)[i], (*candidates)[k]);
    }
  }
}

TEST(TuneFindings, SurviveThePipe) {
  TuneFindings findings = findings_of({{kReduce, 8, kRing, 1.5, 2.5}}, {{kReduce, 8, kTree}});
  findings.message_us = 0.25;
  findings.bytes_per_ns = 3;
  const auto read = decode_findings(encode(findings));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->place.times, findings.place.times);
  EXPECT_EQ(read->by_model, findings.by_model);
  EXPECT_EQ(read->message_us, 0.25);
  EXPECT_EQ(read->bytes_per_ns, 3);
  EXPECT_TRUE(decode_findings(encode(TuneFindings())).status().code() == StatusCode::corrupt_data);
  EXPECT_FALSE(decode_findings("tutti-tuning 1\nmachine m\n").ok());
}

// ---- Worlds ----

constexpr std::chrono::milliseconds kLong{60'000};

TEST(TuneWorld, GivesRankZerosText) {
  for (const char* transport : {"memory", "shm", "tcp"}) {
    const auto text = in_tune_world(transport, 3, kLong, [](runtime::CommunicatorParts parts) {
      const std::string name(parts.transport->traits().name);
      const auto state = std::make_shared<runtime::CommunicatorState>(std::move(parts));
      runtime::CommunicatorState::Request barrier;
      barrier.type = DataType::int32;
      if (Status status = state->run(barrier); !status.ok()) return Result<std::string>(status);
      if (Status status = state->close(); !status.ok()) return Result<std::string>(status);
      return Result<std::string>(name + std::to_string(state->rank()));
    });
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(*text, std::string(transport) + "0");
  }
}

TEST(TuneWorld, SaysWhatWentWrong) {
  const auto failing = [](runtime::CommunicatorParts parts) -> Result<std::string> {
    if (parts.transport->rank() == 1) return Status(StatusCode::system_error, "no luck");
    return std::string("fine");
  };
  EXPECT_THAT(in_tune_world("shm", 2, kLong, failing).status().message(), HasSubstr("no luck"));
  EXPECT_THAT(in_tune_world("memory", 2, kLong, failing).status().message(), HasSubstr("no luck"));
  const auto dying = [](runtime::CommunicatorParts parts) -> Result<std::string> {
    if (parts.transport->rank() == 1) _exit(3);
    return std::string("fine");
  };
  EXPECT_THAT(in_tune_world("shm", 2, kLong, dying).status().message(), HasSubstr("died"));
  const auto sleeping = [](runtime::CommunicatorParts) -> Result<std::string> {
    for (;;) pause();
  };
  EXPECT_EQ(in_tune_world("shm", 2, std::chrono::milliseconds(300), sleeping).status().code(),
            StatusCode::timeout);
}

// ---- The command ----

class TuneCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "tutti-tune-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TUTTI_TUNING_FILE");
    setenv("XDG_CACHE_HOME", "/nonexistent/tutti-tests", 1);
    std::filesystem::remove_all(folder_);
  }
  testing::Outcome tune(std::vector<std::string> options) {
    options.insert(options.begin(), "tune");
    return run_command(add_tune_command, options);
  }
  testing::Outcome tune_briefly(std::vector<std::string> options) {
    options.insert(options.end(), {"--seconds", "0.3", "--ranks", "2", "--transport", "memory",
                                   "--sizes", "8", "--collectives", "all_reduce"});
    return tune(options);
  }

  std::string folder_;
};

TEST_F(TuneCommand, RefusesWhatItCannotMeasure) {
  const struct {
    std::vector<std::string> options;
    const char* why;
  } cases[] = {{{"--ranks", "1"}, "--ranks"},
               {{"--ranks", "2,many"}, "--ranks"},
               {{"--transport", "pigeon"}, "pigeon"},
               {{"--transport", "auto"}, "auto"},
               {{"--collectives", "everything"}, "everything"},
               {{"--collectives", "barrier"}, "nothing to choose"},
               {{"--sizes", "0"}, "--sizes"},
               {{"--sizes", "1T"}, "--sizes"},
               {{"--sizes", ""}, "name one or more"}};
  for (const auto& each : cases) {
    const auto outcome = tune(each.options);
    EXPECT_EQ(outcome.exit_code, 2) << each.why;
    EXPECT_THAT(outcome.err, HasSubstr(each.why));
  }
  EXPECT_EQ(tune({"--seconds", "0"}).exit_code, 2);
}

TEST_F(TuneCommand, WritesNothingWhereItShallNot) {
  const auto outcome = tune_briefly({"--dry-run"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("predicted"), HasSubstr("measured"),
                                 HasSubstr("memory, 2 ranks"), HasSubstr("nothing is written")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(tune({"--show"}).exit_code, 1);  // there is none to show
}

TEST_F(TuneCommand, ThePlannerReadsWhatItWrote) {
  const auto plan = [] {
    return run_command(add_plan_command,
                       {"plan", "all_reduce", "8", "--ranks", "2", "--transport", "memory"});
  };
  EXPECT_THAT(plan().out, Not(HasSubstr("tuning:")));
  const auto outcome = tune_briefly({});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string path =
      runtime::default_tuning_path({{"XDG_CACHE_HOME", folder_}}, base::machine_kind());
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("written to " + path), HasSubstr("To undo: rm " + path)));
  const auto shown = tune({"--show"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("8 B"), HasSubstr("read from " + path)));
  const auto tuned = plan();
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, AllOf(HasSubstr("tuning: " + path), HasSubstr(": measured)"),
                               HasSubstr("by the tuning table; predicted")));
  setenv("TUTTI_TUNING_FILE", "off", 1);
  EXPECT_THAT(plan().out, Not(HasSubstr("measured")));
  // A named file that is none.
  std::ofstream(folder_ + "/bad") << "tutti-tuning 1\nmachine m\nbanana\n";
  setenv("TUTTI_TUNING_FILE", (folder_ + "/bad").c_str(), 1);
  const auto refused = plan();
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("/bad"), HasSubstr("line 3"), HasSubstr("banana")));
  // Another topology is another machine: tables do not matter.
  EXPECT_EQ(run_command(add_plan_command, {"plan", "--topology", "1x2"}).exit_code, 0);
}

}  // namespace
}  // namespace tutti::cli
