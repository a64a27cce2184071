// trace_test.cc: traces collected, written, merged and read again, and how much communication hides
// under compute.
#include "training/report/trace.hpp"
#include "unit/training/in_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "training/files/output_file.hpp"

namespace tutti::training {
namespace {

using testing::HasSubstr;

using test::InFolder;

constexpr TraceLane kCompute = TraceLane::compute;
constexpr TraceLane kCommunication = TraceLane::communication;

TEST(Overlap, CountsWhatLiesUnderComputeOnce) {
  RankTrace trace;
  trace.events = {
      {"outer", kCompute, 0, 100},           {"inner", kCompute, 10, 20},  // nested counts once
      {"next", kCompute, 100, 150},          {"later", kCompute, 300, 400},
      {"hidden", kCommunication, 50, 120},  // across two computes that touch
      {"half", kCommunication, 140, 160},    {"exposed", kCommunication, 200, 250},
      {"same", kCommunication, 240, 260},    {"around", kCommunication, 290, 410},
      {"nothing", kCommunication, 500, 500},
  };
  const Overlap found = overlap(trace);
  EXPECT_EQ(found.compute_ns, 250);
  EXPECT_EQ(found.communication_ns, 70 + 20 + 60 + 120);
  EXPECT_EQ(found.hidden_ns, 70 + 10 + 0 + 100);
  EXPECT_EQ(found.exposed_ns(), 90);
  EXPECT_DOUBLE_EQ(found.hidden_share(), 180.0 / 270);
  EXPECT_EQ(overlap(RankTrace{}).hidden_share(), 1);
}

// Against counting nanosecond by nanosecond, on made-up events.
TEST(Overlap, IsThatOfCountingEachNanosecond) {
  std::uint64_t state = 1;
  const auto below = [&state](std::uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % bound);
  };
  for (int round = 0; round < 50; ++round) {
    RankTrace trace;
    std::array<std::array<bool, 400>, 2> busy{};
    for (int i = 0; i < 12; ++i) {
      const auto lane = below(2) == 0 ? kCompute : kCommunication;
      const std::int64_t begin = below(300), end = begin + below(60);
      trace.events.push_back({"e", lane, begin, end});
      for (std::int64_t t = begin; t < end; ++t)
        busy[static_cast<std::size_t>(lane)][static_cast<std::size_t>(t)] = true;
    }
    Overlap expected;
    for (std::size_t t = 0; t < 400; ++t) {
      expected.compute_ns += busy[0][t];
      expected.communication_ns += busy[1][t];
      expected.hidden_ns += busy[0][t] && busy[1][t];
    }
    const Overlap found = overlap(trace);
    ASSERT_EQ(found.compute_ns, expected.compute_ns);
    ASSERT_EQ(found.communication_ns, expected.communication_ns);
    ASSERT_EQ(found.hidden_ns, expected.hidden_ns);
  }
}

// Each rank's communication under its own compute counts, not under another's.
TEST(Overlap, OfRanksIsTheSumOfEach) {
  std::vector<RankTrace> ranks(2);
  ranks[0].events = {{"c", kCompute, 0, 10}};
  ranks[1].events = {{"r", kCommunication, 0, 10}};
  EXPECT_EQ(overlap(ranks).hidden_ns, 0);
  EXPECT_EQ(overlap(ranks).exposed_ns(), 10);
}

TEST(Trace, CollectsFromSeveralThreads) {
  Trace trace(3, 4000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i)
    threads.emplace_back([&trace, i] {
      for (int j = 0; j < 1000; ++j)
        TraceSpan span(&trace, i % 2 == 0 ? kCompute : kCommunication, "event");
    });
  for (std::thread& thread : threads) thread.join();
  const RankTrace collected = trace.collected();
  EXPECT_EQ(collected.rank, 3);
  EXPECT_EQ(collected.events.size(), 4000u);
  EXPECT_EQ(trace.dropped(), 1000);
  std::int64_t before = 0;
  for (const TraceEvent& event : collected.events) {
    EXPECT_LE(before, event.begin_ns);
    EXPECT_LE(event.begin_ns, event.end_ns);
    before = event.begin_ns;
  }
}

TEST(Trace, NoTraceIsNoEvent) { TraceSpan span(nullptr, kCompute, "nothing"); }

using TraceFile = InFolder;

TEST_F(TraceFile, IsJsonThatViewersAndWeRead) {
  const std::vector<RankTrace> ranks = {
      {0, 1'700'000'000'123'456'789, {{"forward \"0\"", kCompute, 1'234, 5'678'901}}},
      {7, 1'700'000'000'123'456'789, {{"all_reduce", kCommunication, -5, 12'345'678'901'234'567}}}};
  const std::string text = trace_json(ranks);
  const auto json = nlohmann::json::parse(text);
  ASSERT_EQ(json.size(), 6u);
  EXPECT_EQ(json[2],
            nlohmann::json::parse(R"({"name":"forward \"0\"","ph":"X","pid":0,"tid":"compute",)"
                                  R"("ts":1.234,"dur":5677.667})"));
  EXPECT_EQ(json[3]["args"]["name"], "rank 7");
  const auto back = parse_trace_json(text);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  ASSERT_EQ(back->size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back->at(i).rank, ranks[i].rank);
    EXPECT_EQ(back->at(i).origin_unix_ns, ranks[i].origin_unix_ns);
  }
  EXPECT_EQ(back->at(0).events, ranks[0].events);
  EXPECT_EQ(back->at(1).events[0].begin_ns, -5);
  EXPECT_EQ(trace_json({}), "[\n]\n");
}

TEST_F(TraceFile, MergedFilesAreOnOneTime) {
  const RankTrace early = {1, 1'000'000, {{"e", kCompute, 0, 10}}};
  const RankTrace late = {0, 1'000'500, {{"l", kCompute, 0, 10}}};
  ASSERT_TRUE(write_file(path("1"), trace_json({&early, 1})).ok());
  ASSERT_TRUE(write_file(path("0"), trace_json({&late, 1})).ok());
  ASSERT_TRUE(merge_traces(std::vector{path("1"), path("0")}, path("all")).ok());
  const auto all = read_trace(path("all"));
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(0).events[0], (TraceEvent{"l", kCompute, 500, 510}));
  EXPECT_EQ(all->at(1).events[0], (TraceEvent{"e", kCompute, 0, 10}));
  const Status twice = merge_traces(std::vector{path("1"), path("all")}, path("x"));
  EXPECT_EQ(twice.code(), StatusCode::invalid_argument);
  EXPECT_THAT(twice.message(), HasSubstr("has rank 1"));
}

// Of the latest times and the most distant origins that a file may have: none overflows.
TEST_F(TraceFile, WhateverIsReadCanBeAligned) {
  for (const std::string us : {"1e15", "3.2e15"}) {
    const std::string text =
        R"([{"name":"clock_origin","ph":"M","pid":0,"args":{"unix_ns":0}},)"
        R"({"name":"clock_origin","ph":"M","pid":1,"args":{"unix_ns":4611686018427387904}},)"
        R"({"name":"e","ph":"X","pid":1,"tid":"compute","ts":)" +
        us + R"(,"dur":)" + us + "}]";
    auto read = parse_trace_json(text);
    ASSERT_EQ(read.ok(), us == "1e15") << us;
    if (!read.ok()) continue;
    const std::vector<RankTrace> all = aligned(*std::move(read));
    EXPECT_EQ(all.at(1).events.at(0).begin_ns, 5'611'686'018'427'387'904);
    EXPECT_EQ(all.at(1).events.at(0).end_ns, 6'611'686'018'427'387'904);
  }
}

TEST_F(TraceFile, ACollectedTraceReadsBack) {
  Trace trace(2);
  const std::int64_t begin = Trace::now_ns();
  trace.add(kCommunication, "reduce", begin + 1000, begin + 3000);
  trace.add(kCompute, "gemm", begin, begin + 2000);
  ASSERT_TRUE(trace.write(path("t.json")).ok());
  const auto back = read_trace(path("t.json"));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->at(0).events, trace.collected().events);
  EXPECT_EQ(overlap(*back).hidden_ns, 1000);
}

TEST_F(TraceFile, WrongFilesAreNamed) {
  const std::string event = R"("name":"e","ph":"X","pid":0,"tid":"compute")";
  const std::pair<std::string, std::string> cases[] = {
      {"", "JSON array"},
      {"{}", "JSON array"},
      {"[1]", "event 0 should be an object"},
      {"[{}]", "'ph' should be a text"},
      {"[{" + event + R"(,"ts":1}])", "'dur' should be"},
      {"[{" + event + R"(,"ts":1,"dur":-1}])", "'dur' should be"},
      {"[{" + event + R"(,"ts":1e300,"dur":1}])", "'ts' should be"},
      {R"([{"name":"e","ph":"X","pid":-1,"tid":"compute","ts":1,"dur":1}])", "'pid' should be"},
      {R"([{"name":"e","ph":"X","pid":0,"tid":"other","ts":1,"dur":1}])", "'tid' should be"},
      {R"([{"name":"clock_origin","ph":"M","pid":0}])", "'args.unix_ns' should be"},
  };
  for (const auto& [text, wanted] : cases) {
    ASSERT_TRUE(write_file(path("t"), text).ok());
    const auto read = read_trace(path("t"));
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), StatusCode::corrupt_data);
    EXPECT_THAT(read.status().message(), HasSubstr(wanted));
  }
}

}  // namespace
}  // namespace tutti::training
