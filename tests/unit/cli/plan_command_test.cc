// `tutti plan`: questions, answers, and errors that help.
#include "cli/plan_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "collectives/text.hpp"
#include "runtime/host.hpp"
#include "unit/cli/command.hpp"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

Outcome run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return testing::run_command(add_plan_command, std::move(arguments));
}

TEST(PlanCommand, ExplainsOneSize) {
  const Outcome outcome = run({"all_reduce", "64MiB", "--topology", "4x8 nvlink=450 nic=50"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("4 nodes, ranks on 32 of 32 gpus"));
  EXPECT_THAT(outcome.out, HasSubstr("nvlink 450 GB/s (given)"));
  EXPECT_THAT(outcome.out, HasSubstr("all_reduce of 64 MiB (16777216 x float), 32 ranks"));
  EXPECT_THAT(outcome.out, HasSubstr("* hierarchical"));
  EXPECT_THAT(outcome.out, HasSubstr("reduce-scatter + all-gather"));
}

TEST(PlanCommand, SweepsSizes) {
  const Outcome outcome =
      run({"broadcast", "--sizes", "8,1K,1M", "--topology", "4", "--root", "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\n       8 B "));
  EXPECT_THAT(outcome.out, HasSubstr("\n     1 KiB "));
  EXPECT_THAT(outcome.out, HasSubstr("\n     1 MiB "));
}

TEST(PlanCommand, WritesJson) {
  const Outcome outcome = run({"all_gather", "1M", "--topology", "1x3", "--ranks", "5", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["ranks"], 5);
  EXPECT_EQ(json["count"], (1 << 20) / 4 / 5);
  EXPECT_GT(json["candidates"][0]["predicted_us"], 0.0);
  EXPECT_GT(json["bounds"]["memory"]["us"], 0.0);
}

// Ranks on sockets have seats of their own, and no cores of their own.
TEST(PlanCommand, TellsWhoTakesTurns) {
  setenv("TUTTI_TUNING_FILE", "off", 1);
  const auto cores = static_cast<int>(runtime::describe_host().cpus.size());
  const auto ranks = std::to_string(cores + 1);
  const Outcome outcome = run({"all_reduce", "8", "--transport", "tcp", "--ranks", ranks});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("), which are " + std::to_string(cores) + " by turns"));
  const Outcome enough =
      run({"all_reduce", "8", "--transport", "tcp", "--ranks", std::to_string(cores)});
  EXPECT_THAT(enough.out, Not(HasSubstr("by turns")));
  unsetenv("TUTTI_TUNING_FILE");
}

// As a communicator would: with the transport's own frames, and directly only where ranks share
// memory.
TEST(PlanCommand, KnowsTheTransportsOfThisMachineWithoutMeasurements) {
  setenv("TUTTI_TUNING_FILE", "off", 1);
  for (const auto& [transport, slice_bytes] :
       {std::pair("shm", 262144), std::pair("tcp", 737280)}) {
    const Outcome outcome =
        run({"all_gather", "16M", "--ranks", "2", "--transport", transport, "--json"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const auto candidates = nlohmann::json::parse(outcome.out)["candidates"];
    EXPECT_EQ(candidates[0]["slice_bytes"], slice_bytes);
    const bool any_direct =
        std::any_of(candidates.begin(), candidates.end(),
                    [](const auto& candidate) { return candidate["lowering"] == "direct"; });
    EXPECT_EQ(any_direct, std::string(transport) == "shm");
  }
  unsetenv("TUTTI_TUNING_FILE");
}

TEST(PlanCommand, ShowsTheScheduleAndPrograms) {
  const std::vector<std::string> question = {"all_reduce", "1M", "--topology", "1x4", "--show"};
  auto with = [&](std::vector<std::string> rest) {
    rest.insert(rest.begin(), question.begin(), question.end());
    return run(rest);
  };
  const Outcome schedule = with({"schedule"});
  ASSERT_EQ(schedule.exit_code, 0) << schedule.err;
  const auto parsed = collectives::parse_schedule(schedule.out);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->shape.ranks, 4);
  const Outcome program = with({"program", "--rank", "3"});
  EXPECT_EQ(program.exit_code, 0);
  EXPECT_FALSE(program.out.empty());
}

TEST(PlanCommand, ForcesWhatItIsTold) {
  const Outcome outcome =
      run({"all_reduce", "1M", "--topology", "1x4", "--algorithm", "tree", "--lowering", "staged",
           "--channels", "2", "--slice", "8K", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["candidates"].size(), 1u);
  EXPECT_EQ(json["candidates"][0]["algorithm"], "tree");
  EXPECT_EQ(json["candidates"][0]["lowering"], "staged");
  EXPECT_EQ(json["candidates"][0]["channels"], 2);
  EXPECT_EQ(json["candidates"][0]["slice_bytes"], 8192);
}

TEST(PlanCommand, SaysWhatTheOrderOfRanksForbids) {
  const Outcome outcome =
      run({"all_reduce", "64K", "--topology", "1x8", "--reduce-order", "rank_tree"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("reduce_order=rank_tree leaves"));
  EXPECT_THAT(outcome.out, HasSubstr("ring              not possible: rank "));
  EXPECT_THAT(outcome.out, HasSubstr("  doubling          staged"));
  const Outcome refused = run({"all_reduce", "64K", "--topology", "1x8", "--type", "half",
                               "--reduce-order", "rank_tree", "--algorithm", "doubling"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("partial result, which reduce_order=rank_tree forbids"));
  EXPECT_THAT(refused.err, HasSubstr("use direct"));
}

TEST(PlanCommand, RefusesNonsense) {
  const std::vector<std::vector<std::string>> questions = {
      {"all_reduces"},
      {"all_reduce", "many", "--topology", "4"},
      {"all_reduce", "1M", "--sweep", "--topology", "4"},
      {"all_reduce", "1M", "--topology", "4 nonsense=1"},
      {"broadcast", "1M", "--topology", "4", "--root", "4"},
      {"all_reduce", "1M", "--topology", "4", "--algorithm", "hierarchical"},
      {"all_reduce", "1M", "--topology", "4", "--no-direct", "--lowering", "direct"},
      {"all_reduce", "1M", "--topology", "4", "--lowering", "sideways"},
  };
  for (const auto& question : questions) {
    const Outcome outcome = run(question);
    EXPECT_EQ(outcome.exit_code, 2) << question.back();
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_THAT(run({"all_reduce", "1M", "--topology", "4", "--algorithm", "x"}).err,
              HasSubstr("there are: direct ring"));
}

}  // namespace
}  // namespace tutti::cli
