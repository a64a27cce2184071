// The report has the keys and types that readers of nccl-tests' version 3 look for, and no secrets.
#include "perf/common/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tutti::perf {
namespace {

using ::testing::ElementsAre;

Report sample() {
  Report report;
  report.start_time = "2024-05-06 07:08:09";
  report.end_time = "2024-05-06 07:08:10";
  report.arguments = {"reduce_perf", "-b", "8"};
  report.devices = {{1, 0, 4242, "sonata", 1, 0, 0, 1, "Some CPU"}};
  Row row;
  row.bytes = 16;
  row.count = 4;
  row.type = "float";
  row.op = "sum";
  row.root = 3;
  row.out_of_place = {1.5, 0.25, 0.5, 2, {}};
  row.in_place = Half{2.5, 0.125, 0.25, {}, {}};
  report.rows = {row, row};
  report.rows[1].in_place.reset();
  report.summary.wrong = 2;
  report.summary.busbw = 0.375;
  report.errors = {"timeout: rank 1"};
  return report;
}

nlohmann::json parsed(const Report& report) {
  return nlohmann::json::parse(json_text("reduce_perf", report));
}

TEST(Json, HasTheKeysOfVersionThree) {
  const auto json = parsed(sample());
  EXPECT_EQ(json.at("version"), 3);
  EXPECT_EQ(json.at("start_time"), "2024-05-06 07:08:09");
  EXPECT_EQ(json.at("args"), (std::vector<std::string>{"reduce_perf", "-b", "8"}));
  EXPECT_TRUE(json.at("env").is_array());
  EXPECT_TRUE(json.at("nccl_version").is_number_integer());
  const auto& config = json.at("config");
  for (const char* key :
       {"nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_bytes", "warmup_iters",
        "iterations", "aggregated_iterations", "validation", "graph", "per_iter_skip"})
    EXPECT_TRUE(config.at(key).is_number_integer()) << key;
  for (const char* key : {"blocking_collectives", "per_iter_timing", "parallel_init"})
    EXPECT_EQ(config.at(key), "false") << key;
  const auto& device = config.at("devices").at(0);
  EXPECT_EQ(device.at("rank"), 1);
  EXPECT_EQ(device.at("hostname"), "sonata");
  EXPECT_EQ(device.at("device_hex"), "0000:00:01");
  EXPECT_EQ(device.at("device_info"), "Some CPU");
  EXPECT_EQ(json.at("out_of_bounds").at("count"), 2);
  EXPECT_EQ(json.at("out_of_bounds").at("okay"), "false");
  EXPECT_EQ(json.at("average_bus_bandwidth").at("bandwidth"), 0.375);
  EXPECT_EQ(json.at("average_bus_bandwidth").at("okay"), "unchecked");
  EXPECT_EQ(json.at("errors").at(0), "timeout: rank 1");
  EXPECT_EQ(json.at("end_time"), "2024-05-06 07:08:10");
}

TEST(Json, HasARowPerLine) {
  const auto results = parsed(sample()).at("results");
  ASSERT_EQ(results.size(), 2u);
  const auto& row = results.at(0);
  EXPECT_EQ(row.at("size"), 16);
  EXPECT_EQ(row.at("count"), 4);
  EXPECT_EQ(row.at("root"), "     3");
  EXPECT_EQ(row.at("redop"), "sum");
  EXPECT_EQ(row.at("out_of_place").at("time"), 1.5);
  EXPECT_EQ(row.at("out_of_place").at("alg_bw"), 0.25);
  EXPECT_EQ(row.at("out_of_place").at("bus_bw"), 0.5);
  EXPECT_EQ(row.at("out_of_place").at("nwrong"), 2);
  EXPECT_TRUE(row.at("in_place").at("nwrong").is_null());
  EXPECT_EQ(row.at("actual_iterations"), 20);
  EXPECT_EQ(row.at("experiment_name"), "reduce_perf");
  EXPECT_FALSE(row.contains("in_place_per_iter"));
  EXPECT_TRUE(results.at(1).at("in_place").is_null());
}

TEST(Json, FollowsTheOptions) {
  Report report = sample();
  report.options.step_factor = 2;
  report.options.cpu_time = true;
  report.options.per_iteration = true;
  for (Row& row : report.rows) row.out_of_place.iterations_us = {1, 3};
  report.rows[0].in_place->iterations_us = {2, 2};
  report.summary.fast_enough = true;
  const auto json = parsed(report);
  EXPECT_EQ(json.at("config").at("step_factor"), 2);
  EXPECT_FALSE(json.at("config").contains("step_bytes"));
  EXPECT_EQ(json.at("config").at("per_iter_timing"), "true");
  const auto& row = json.at("results").at(0);
  EXPECT_EQ(row.at("out_of_place").at("cpu_time"), 1.5);
  EXPECT_EQ(row.at("out_of_place_per_iter").at("avg_us"), 2);
  EXPECT_EQ(row.at("out_of_place_per_iter").at("times_us").size(), 2u);
  EXPECT_EQ(row.at("in_place_per_iter").at("stdev_us"), 0);
  EXPECT_EQ(json.at("average_bus_bandwidth").at("okay"), "true");
}

TEST(Json, KeepsWhatSteersAndNoSecrets) {
  const char* const environment[] = {"TUTTI_TRANSPORT=tcp",
                                     "TUTTI_JOB_SECRET_FILE=/x",
                                     "TUTTI_JOB_SECRET=abc",
                                     "RANK=1",
                                     "RANKING=9",
                                     "HOME=/root",
                                     "NCCL_TESTS_MIN_BW=2",
                                     nullptr};
  EXPECT_THAT(steering(environment),
              ElementsAre("TUTTI_TRANSPORT=tcp", "RANK=1", "NCCL_TESTS_MIN_BW=2"));
}

class JsonFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "tutti-perf-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(JsonFile, NeverReplacesAnother) {
  const std::string path = folder_ + "/report.json";
  EXPECT_EQ(claim_file(path).value(), path);
  EXPECT_EQ(claim_file(path).value(), path + ".0");
  EXPECT_EQ(claim_file(path).value(), path + ".1");
  EXPECT_TRUE(write_file(path, "text\n").ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "text\n");
}

TEST_F(JsonFile, SaysWhatCannotBeMade) {
  const auto claimed = claim_file(folder_ + "/none/report.json");
  ASSERT_FALSE(claimed.ok());
  EXPECT_EQ(claimed.status().code(), StatusCode::system_error);
  EXPECT_THAT(claimed.status().message(), ::testing::HasSubstr("none/report.json"));
}

}  // namespace
}  // namespace tutti::perf
