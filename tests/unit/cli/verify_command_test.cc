// `tutti verify`: which schedules a campaign covers, what it reports, and its options.
#include "cli/verify_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/verify_campaign.hpp"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

int run(std::vector<std::string> arguments) {
  CLI::App app{"test"};
  int exit_code = -1;
  add_verify_command(app, exit_code);
  arguments.insert(arguments.begin(), "verify");
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return exit_code;
}

std::string output_of(const std::vector<std::string>& arguments, int exit_code) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(arguments), exit_code);
  return ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
}

CampaignReport campaign(const CampaignOptions& options) {
  return run_campaign(options, [](double, const CampaignReport&) {});
}

TEST(VerifyCampaign, CoversEveryRootAndGroup) {
  CampaignOptions options;
  options.collective = Collective::broadcast;
  options.algorithm = "ring";
  options.ranks_min = 2;
  options.ranks_max = 4;
  CampaignReport report;
  EXPECT_EQ(campaign_cases(options, report).size(), 2U + 3U + 4U);
  options.algorithm = "hierarchical";
  options.ranks_min = options.ranks_max = 12;
  EXPECT_EQ(campaign_cases(options, report).size(), 12U * 7U);
  // 2, 3, 4 and 6 per node; 2x2, 2x3 and 3x2
  EXPECT_TRUE(report.not_applicable.empty());
}

TEST(VerifyCampaign, ListsWhatDoesNotApply) {
  CampaignOptions options;
  options.collective = Collective::all_gather;
  options.algorithm = "doubling";
  options.ranks_min = 1;
  options.ranks_max = 6;
  const CampaignReport report = campaign(options);
  ASSERT_EQ(report.not_applicable.size(), 1U);
  EXPECT_EQ(report.not_applicable.begin()->first, "all_gather/doubling");
  EXPECT_EQ(report.not_applicable.begin()->second.ranks, (std::vector<int>{3, 5, 6}));
  EXPECT_EQ(report.schedules, 3);
  EXPECT_TRUE(report.ok());
}

TEST(VerifyCampaign, ProvesTheTableAndItsMutants) {
  CampaignOptions options;
  options.ranks_max = 5;
  options.mutants = 300;
  const CampaignReport report = campaign(options);
  EXPECT_TRUE(report.ok()) << (report.failures.empty() ? "" : report.failures[0]);
  EXPECT_GT(report.schedules, 200);
  EXPECT_GT(report.worlds, 10 * report.schedules);
  EXPECT_GE(report.mutants.total(), 300);
  EXPECT_GT(report.mutants.rejected(), 250);
}

TEST(VerifyCampaign, TheNumberOfThreadsChangesNothing) {
  CampaignOptions options;
  options.ranks_max = 4;
  options.mutants = 50;
  options.threads = 1;
  const CampaignReport alone = campaign(options);
  options.threads = 3;
  const CampaignReport together = campaign(options);
  EXPECT_EQ(alone.steps, together.steps);
  EXPECT_EQ(alone.mutants.rejected_by, together.mutants.rejected_by);
  EXPECT_EQ(alone.mutants.proofs, together.mutants.proofs);
}

TEST(VerifyCommand, PrintsWhatWasProved) {
  const std::string output = output_of(
      {"--collective", "all_reduce", "--algorithm", "ring", "--ranks", "2..4", "--chunks", "1"}, 0);
  EXPECT_THAT(output, HasSubstr("schedules       3 (in 22 forms and chunkings)"));
  EXPECT_THAT(output, HasSubstr("all proved"));
}

TEST(VerifyCommand, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(output_of({}, 2), HasSubstr("say what to prove"));
  EXPECT_THAT(output_of({"--all", "--ranks", "3..1"}, 2), HasSubstr("--ranks 3..1"));
  EXPECT_THAT(output_of({"--all", "--ranks", "1..33x"}, 2), HasSubstr("such as 1..33"));
  EXPECT_THAT(output_of({"--algorithm", "wrong"}, 2), HasSubstr("there are: direct ring tree"));
  EXPECT_THAT(output_of({"--collective", "wrong"}, 2), HasSubstr("wrong"));
  EXPECT_THAT(output_of({"--all", "--chunks", "0"}, 2), HasSubstr("--chunks 0"));
}

class VerifyFile : public ::testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_) << text; }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_ = (std::filesystem::temp_directory_path() /
                       ("tutti_verify_" +
                        std::to_string(std::hash<std::string>()(
                            ::testing::UnitTest::GetInstance()->current_test_info()->name())) +
                        ".txt"))
                          .string();
};

TEST_F(VerifyFile, ProvesASchedule) {
  write(
      "tutti schedule 1\nalgorithm hand\ncollective broadcast\nranks 2\n"
      "program for 0\n  copy input[0] -> output[0], to 1\n"
      "program for 1\n  copy from 0 -> output[0]\n");
  EXPECT_THAT(output_of({"--file", path_}, 0), HasSubstr("all proved"));
}

TEST_F(VerifyFile, SaysWhatIsWrong) {
  write("tutti schedule 1\nranks 2\nprogram for 0-1\n  copy input[7] -> output[0]\n");
  EXPECT_THAT(output_of({"--file", path_}, 1), HasSubstr("input[7] lies outside of its buffer"));
  write("tutti schedule 1\nranks 2\nprogram for 0-1\n  copy input[0] -> output[0]\n");
  EXPECT_THAT(output_of({"--file", path_}, 1), HasSubstr("contract: output[0] of rank 0 holds"));
  write("tutti schedule 1\nranks 2\nroot 9\ncollective broadcast\nprogram for 0-1\n");
  EXPECT_THAT(output_of({"--file", path_}, 1), HasSubstr("root 9 among 2 ranks"));
  // Few steps and a short text, but gigabytes of operands.
  std::string wide = "tutti schedule 1\nranks 2\nprogram for 0-1\nrepeat 30000\nreduce input[0]";
  for (int i = 0; i < 2000; ++i) wide += ",input[0]";
  write(wide + " -> output[0]\nend\n");
  EXPECT_THAT(output_of({"--file", path_}, 1), HasSubstr("more than 65536 steps or"));
  write("tutti schedule 1\nranks two\n");
  EXPECT_THAT(output_of({"--file", path_}, 2), HasSubstr("line 2: expected a number"));
}

}  // namespace
}  // namespace tutti::cli
