// The command lines that people have for nccl-tests are understood, or refused with a remedy.
#include "perf/common/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace tutti::perf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Request> parse(std::vector<std::string> arguments) {
  return parse_options("all_reduce_perf", std::move(arguments));
}

Options parsed(std::vector<std::string> arguments) {
  const auto request = parse(std::move(arguments));
  EXPECT_TRUE(request.ok()) << request.status().to_string();
  return request.ok() ? request.value().options : Options{};
}

void expect_refused(std::vector<std::string> arguments, StatusCode code, const char* text) {
  const auto request = parse(std::move(arguments));
  ASSERT_FALSE(request.ok()) << text;
  EXPECT_EQ(request.status().code(), code) << request.status().to_string();
  EXPECT_THAT(request.status().message(), HasSubstr(text));
}

TEST(Options, DefaultsAreThoseOfNcclTests) {
  const Options options = parsed({});
  EXPECT_EQ(options.min_bytes, 33554432u);
  EXPECT_EQ(options.max_bytes, 33554432u);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.warmup, 1);
  EXPECT_EQ(options.checks, 1);
  EXPECT_EQ(options.average, Average::mean);
  EXPECT_THAT(options.ops, ElementsAre(ReduceOp::sum));
  EXPECT_THAT(options.types, ElementsAre(DataType::float32));
  EXPECT_THAT(sizes_of(options), ElementsAre(33554432u));
}

TEST(Options, ShortAndLongFlags) {
  for (const Options& options :
       {parsed({"-b", "8", "-e64M", "-f", "2", "-n", "5", "-r", "-1", "-t", "3", "-d", "half"}),
        parsed({"--minbytes", "8", "--maxbytes=64M", "--stepfactor", "2", "--iters", "5", "--root",
                "all", "--nthreads", "3", "--datatype", "half"})}) {
    EXPECT_EQ(options.min_bytes, 8u);
    EXPECT_EQ(options.max_bytes, 67108864u);
    EXPECT_EQ(options.step_factor, 2u);
    EXPECT_EQ(options.iterations, 5);
    EXPECT_EQ(options.root, kEveryRoot);
    EXPECT_EQ(options.threads, 3);
    EXPECT_THAT(options.types, ElementsAre(DataType::float16));
  }
}

TEST(Options, EveryOtherFlagArrives) {
  const Options options = parsed(
      {"-m", "4",  "-w", "0",  "-N",     "0",  "-c",        "0",         "-z",    "3",  "-a",
       "3",  "-C", "1",  "-J", "o.json", "-S", "1",         "-M",        "1",     "-u", "1",
       "-I", "1",  "-K", "2",  "-T",     "9",  "--explain", "--buffers", "plain", "-g", "1"});
  EXPECT_EQ(options.aggregated, 4);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_EQ(options.cycles, 0);
  EXPECT_EQ(options.checks, 0);
  EXPECT_EQ(options.blocking, Blocking::every_iteration);
  EXPECT_EQ(options.average, Average::maximum);
  EXPECT_TRUE(options.cpu_time);
  EXPECT_FALSE(options.floor);
  EXPECT_TRUE(parsed({"--floor"}).floor);
  EXPECT_THAT(parsed({"-o", "mulsum"}).ops, ElementsAre(mulsum()));
  EXPECT_EQ(options.json_path, "o.json");
  EXPECT_TRUE(options.timestamps);
  EXPECT_TRUE(options.memory);
  EXPECT_EQ(options.unalign, 1);
  EXPECT_TRUE(options.per_iteration);
  EXPECT_EQ(options.skip_iterations, 2);
  EXPECT_EQ(options.timeout, std::chrono::seconds(9));
  EXPECT_TRUE(options.explain);
  EXPECT_EQ(options.buffers, BufferKind::plain);
}

TEST(Options, AllMeansAllThatTuttiHas) {
  const Options options = parsed({"-d", "all", "-o", "all"});
  EXPECT_THAT(options.types, ::testing::ElementsAreArray(kAllDataTypes));
  EXPECT_THAT(options.ops, ElementsAre(ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max,
                                       ReduceOp::avg, mulsum()));
}

TEST(Options, WhatNeedsAGpuIsRefusedWithARemedy) {
  expect_refused({"-g", "2"}, StatusCode::unsupported, "use -t");
  expect_refused({"-G", "1"}, StatusCode::unsupported, "use -m");
  expect_refused({"-R", "2"}, StatusCode::unsupported, "--buffers shared");
  expect_refused({"--stream_null", "1"}, StatusCode::unsupported, "leave it out");
  expect_refused({"-D", "1"}, StatusCode::unsupported, "leave it out");
  expect_refused({"-V", "8"}, StatusCode::unsupported, "leave it out");
  expect_refused({"-x", "1"}, StatusCode::unsupported, "leave it out");
  EXPECT_EQ(parsed({"-g", "1", "-G", "0", "-R", "0", "-V", "16"}).threads, 1);
}

TEST(Options, TypesAndOperationsThatTuttiHasNotAreRefused) {
  expect_refused({"-d", "f8e3m4"}, StatusCode::invalid_argument, "f8e4m3");
  expect_refused({"-d", "flaot"}, StatusCode::invalid_argument, "flaot");
  expect_refused({"-o", "add"}, StatusCode::invalid_argument, "add");
}

TEST(Options, NonsenseIsRefused) {
  expect_refused({"-b", "64M", "-e", "32M"}, StatusCode::invalid_argument,
                 "-b 67108864 is above -e 33554432");
  expect_refused({"-b", "0", "-f", "2"}, StatusCode::invalid_argument, "begin at 1");
  expect_refused({"-b", "8", "-i", "0"}, StatusCode::invalid_argument, "above 0");
  expect_refused({"-e", "64X"}, StatusCode::invalid_argument, "'64X' is no size");
  expect_refused({"-r", "-2"}, StatusCode::invalid_argument, "-r -2");
  expect_refused({"-r", "1x"}, StatusCode::invalid_argument, "-r 1x");
  expect_refused({"-n", "0"}, StatusCode::invalid_argument, "--iters");
  expect_refused({"-I", "1", "-n", "3", "-K", "3"}, StatusCode::invalid_argument, "leaves none");
  expect_refused({"--colour"}, StatusCode::invalid_argument, "all_reduce_perf --help");
  expect_refused({"stray"}, StatusCode::invalid_argument, "stray");
}

TEST(Options, HelpIsAText) {
  const auto request = parse({"--help"});
  ASSERT_TRUE(request.ok());
  EXPECT_THAT(request.value().text, HasSubstr("--minbytes"));
  EXPECT_THAT(request.value().text, ::testing::Not(HasSubstr("--cudagraph")));
}

TEST(Options, SizesHaveBinarySuffixes) {
  EXPECT_EQ(parse_bytes("8").value(), 8u);
  EXPECT_EQ(parse_bytes("1.5G").value(), 1610612736u);
  EXPECT_EQ(parse_bytes("3k").value(), 3072u);
  for (const char* text : {"", "K", "8KB", "-1", "1e30", "nan"})
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
}

TEST(Options, OneEndAloneMayLieBeyondTheDefault) {
  EXPECT_THAT(sizes_of(parsed({"-e", "1M"})), ElementsAre(1048576));
  EXPECT_THAT(sizes_of(parsed({"-b", "64M"})), ElementsAre(67108864));
}

TEST(Options, SizesStepByFactorOrByBytes) {
  EXPECT_THAT(sizes_of(parsed({"-b", "8", "-e", "100", "-f", "3"})), ElementsAre(8, 24, 72));
  EXPECT_THAT(sizes_of(parsed({"-b", "0", "-e", "2K", "-i", "1K"})), ElementsAre(0, 1024, 2048));
}

TEST(Options, EnvironmentSetsTheBandwidthThatIsAskedFor) {
  Options options;
  const auto with = [&](auto get) { return apply_environment(get, options); };
  EXPECT_TRUE(with([](const char*) -> const char* { return nullptr; }).ok());
  EXPECT_EQ(options.min_bandwidth, 0);
  EXPECT_TRUE(with([](const char* name) -> const char* {
                return std::strcmp(name, "NCCL_TESTS_MIN_BW") == 0 ? "2.5" : nullptr;
              }).ok());
  EXPECT_EQ(options.min_bandwidth, 2.5);
  EXPECT_FALSE(with([](const char* name) -> const char* {
                 return std::strcmp(name, "NCCL_TESTS_MIN_BW") == 0 ? "fast" : nullptr;
               }).ok());
  EXPECT_FALSE(with([](const char* name) -> const char* {
                 return std::strcmp(name, "NCCL_TESTS_SPLIT") == 0 ? "MOD 2" : nullptr;
               }).ok());
}

}  // namespace
}  // namespace tutti::perf
