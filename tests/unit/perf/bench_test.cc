// Measuring and checking on real ranks (threads): every tool finds nothing wrong in what the
// library does, and a tool whose call lies is caught, on every rank.
#include "perf/common/bench.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace tutti::perf {
namespace {

using ::testing::HasSubstr;

// What each of `ranks` ranks measures for the line.
std::vector<Result<Row>> measure(const Tool& tool, const Options& options, const Line& line,
                                 int ranks) {
  auto communicators = Communicator::for_threads(ranks);
  EXPECT_TRUE(communicators.ok()) << communicators.status().to_string();
  const Status none(StatusCode::internal, "did not run");
  std::vector<Result<Row>> rows(static_cast<std::size_t>(ranks), none);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    threads.emplace_back([&, rank, own = std::move((*communicators)[rank])]() mutable {
      auto bench = Bench::make(own, tool, options);
      const Status status = bench.ok() ? bench->warm_up(line) : bench.status();
      rows[rank] = status.ok() ? bench->measure(line) : Result<Row>(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return rows;
}

Options small() {
  Options options;
  options.min_bytes = 64;
  options.max_bytes = 1024;
  options.iterations = 3;
  return options;
}

TEST(Bench, FindsNothingWrongWithAnyTool) {
  for (const Tool* tool : tools()) {
    const int ranks = tool->serves == nullptr ? 3 : 4;
    const Line line{512, DataType::float16, ReduceOp::avg, 1};
    for (const auto& row : measure(*tool, small(), line, ranks)) {
      ASSERT_TRUE(row.ok()) << row.status().to_string();
      EXPECT_EQ(row.value().out_of_place.wrong, 0) << tool->name;
      EXPECT_GT(row.value().out_of_place.time_us, 0) << tool->name;
      EXPECT_EQ(row.value().in_place.has_value(), tool->in_place) << tool->name;
      if (row.value().in_place) {
        EXPECT_EQ(row.value().in_place->wrong, 0) << tool->name;
      }
      EXPECT_EQ(row.value().op, is_reduction(tool->collective) ? "avg" : "none");
      EXPECT_EQ(row.value().root, has_root(tool->collective) ? 1 : -1);
    }
  }
}

TEST(Bench, BandwidthsFollowFromTheTime) {
  const auto rows = measure(all_gather_tool(), small(), {100, DataType::float32, {}, 0}, 3);
  ASSERT_TRUE(rows[0].ok());
  const Row& row = rows[0].value();
  EXPECT_EQ(row.bytes, 96u);  // three blocks of two lines of 16 bytes
  EXPECT_EQ(row.count, 8u);
  EXPECT_DOUBLE_EQ(row.out_of_place.algbw, 96e-9 / (row.out_of_place.time_us * 1e-6));
  EXPECT_DOUBLE_EQ(row.out_of_place.busbw, row.out_of_place.algbw * 2 / 3);
}

TEST(Bench, HypercubesCountWhatTravels) {
  const auto rows = measure(hypercube_tool(), small(), {128, DataType::float32, {}, 0}, 4);
  ASSERT_TRUE(rows[0].ok());
  const Half& half = rows[0]->out_of_place;
  EXPECT_EQ(rows[0]->bytes, 128u);
  EXPECT_DOUBLE_EQ(half.algbw, 96e-9 / (half.time_us * 1e-6));
  EXPECT_DOUBLE_EQ(half.busbw, half.algbw);
}

TEST(Bench, ScaledSumsAreChecked) {
  for (const DataType type : kAllDataTypes)
    for (const auto& row : measure(all_reduce_tool(), small(), {512, type, mulsum(), 0}, 5)) {
      ASSERT_TRUE(row.ok()) << row.status().to_string();
      EXPECT_EQ(row->op, "mulsum");
      EXPECT_EQ(row->out_of_place.wrong, 0);
      EXPECT_EQ(row->in_place->wrong, 0);
    }
  // A plain sum is not what is expected.
  Tool forgetful = all_reduce_tool();
  forgetful.call = [](Communicator& ranks, const Call& c) {
    return ranks.all_reduce(c.input, c.output, c.count, c.type, ReduceOp::sum);
  };
  const auto rows = measure(forgetful, small(), {512, DataType::int64, mulsum(), 0}, 2);
  EXPECT_GT(rows[0]->out_of_place.wrong, 100);
}

TEST(Bench, KnowsTheFloorOfEveryTool) {
  Options options = small();
  options.floor = true;
  for (const Tool* tool : tools()) {
    const auto rows = measure(*tool, options, {1024, DataType::float32, {}, 0}, 4);
    ASSERT_TRUE(rows[0].ok()) << tool->name << rows[0].status().to_string();
    ASSERT_TRUE(rows[0]->floor_us.has_value()) << tool->name;
    EXPECT_GT(*rows[0]->floor_us, 0) << tool->name;
    EXPECT_EQ(*rows[0]->floor_us, *rows[3]->floor_us) << tool->name;
  }
}

// all_reduce, but for one bit of one element on rank 1.
Status lie(Communicator& communicator, const Call& call) {
  const Status status = all_reduce_tool().call(communicator, call);
  if (communicator.rank() == 1) static_cast<unsigned char*>(call.output)[40] ^= 1;
  return status;
}

TEST(Bench, CatchesOneWrongBitOnOneRank) {
  Tool liar = all_reduce_tool();
  liar.call = lie;
  for (const auto& row : measure(liar, small(), {512, DataType::int32, ReduceOp::sum, 0}, 3)) {
    ASSERT_TRUE(row.ok()) << row.status().to_string();
    EXPECT_EQ(row.value().out_of_place.wrong, 1);
    EXPECT_EQ(row.value().in_place->wrong, 1);
  }
}

TEST(Bench, CatchesACallThatDoesNothing) {
  Tool idle = all_reduce_tool();
  idle.call = [](Communicator&, const Call&) { return Status(); };
  for (const auto& row : measure(idle, small(), {512, DataType::int32, ReduceOp::sum, 0}, 2))
    EXPECT_EQ(row.value().out_of_place.wrong, 2 * 128);
}

TEST(Bench, ErrorsNameRankCallAndSize) {
  Tool failing = all_reduce_tool();
  failing.call = [](Communicator&, const Call&) {
    return Status(StatusCode::timeout, "rank 7 did not come");
  };
  Options options = small();
  options.warmup = 0;
  const auto rows = measure(failing, options, {512, DataType::float64, ReduceOp::max, 0}, 2);
  ASSERT_FALSE(rows[1].ok());
  EXPECT_EQ(rows[1].status().code(), StatusCode::timeout);
  EXPECT_THAT(rows[1].status().message(),
              HasSubstr("rank 1: all_reduce of 512 B (64 double, max): rank 7 did not come"));
}

TEST(Bench, DoesNotCheckUnasked) {
  Options options = small();
  options.checks = 0;
  const auto rows = measure(broadcast_tool(), options, {512, DataType::int64, {}, 0}, 2);
  EXPECT_FALSE(rows[0].value().out_of_place.wrong.has_value());
}

TEST(Bench, EveryWayOfTimingChecksAsWell) {
  for (const Blocking blocking : {Blocking::none, Blocking::every_operation,
                                  Blocking::every_operation_alone, Blocking::every_iteration}) {
    Options options = small();
    options.blocking = blocking;
    options.aggregated = 3;
    options.per_iteration = true;
    options.unalign = 1;
    options.buffers = BufferKind::plain;
    const Line line{512, DataType::float32, ReduceOp::sum, 0};
    for (const auto& row : measure(all_reduce_tool(), options, line, 2)) {
      ASSERT_TRUE(row.ok()) << row.status().to_string();
      EXPECT_EQ(row.value().out_of_place.wrong, 0);
      EXPECT_EQ(row.value().in_place->iterations_us.size(), 3u);
    }
  }
}

}  // namespace
}  // namespace tutti::perf
