// Calls of device worlds, from planning to the last byte: on threads in place of a GPU.
#include "runtime/gpu/host/world.hpp"

#include <gmock/gmock.h>

#include <thread>

#include "collectives/contract.hpp"
#include "gpu_world/host_device.hpp"
#include "gpu_world/stage.hpp"
#include "gpu_world/worlds.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

#ifdef TUTTI_SANITIZED
constexpr int kOneIn = 6;
#else
constexpr int kOneIn = 1;
#endif

class GpuWorldCalls : public ::testing::TestWithParam<int> {};

TEST_P(GpuWorldCalls, GiveWhatTheContractsSay) {
  constexpr std::size_t kCounts[] = {0, 1, 7, 61, 251};
  HostDevice device;
  const auto stage = make_stage(device, GetParam());
  ASSERT_NE(stage, nullptr);
  int number = 0;
  for (const Collective collective : kAllCollectives)
    for (const std::size_t count : kCounts) {
      if (number++ % kOneIn != 0) continue;
      StageCase what;
      what.collective = collective;
      what.seed = static_cast<std::uint64_t>(number);
      what.type = kAllDataTypes[static_cast<std::size_t>(number) % std::size(kAllDataTypes)];
      what.op = kAllReduceOps[static_cast<std::size_t>(number) % std::size(kAllReduceOps)];
      what.root = number % GetParam();
      what.count = collective == Collective::barrier ? 0 : count;
      what.in_place = number % 2 == 0 && collectives::may_run_in_place(collective);
      const Status status = stage->run(what);
      ASSERT_TRUE(status.ok()) << what.text() << ": " << status.to_string();
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuWorldCalls, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(GpuWorld, ReducesAllTypesByAllOperations) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  std::uint64_t seed = 0;
  for (const DataType type : kAllDataTypes)
    for (const ReduceOp op : kAllReduceOps) {
      StageCase what = sum_of(29, ++seed);
      what.type = type;
      what.op = op;
      const Status status = stage->run(what);
      EXPECT_TRUE(status.ok()) << what.text() << ": " << status.to_string();
    }
}

TEST(GpuWorld, ScalesBeforeItSums) {
  HostDevice device;
  const auto stage = make_stage(device, 3);
  ASSERT_NE(stage, nullptr);
  std::uint64_t seed = 0;
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter})
    for (const DataType type : kAllDataTypes)
      for (const std::size_t count : {0U, 7U, 431U})
        for (const bool in_place : {false, true}) {
          StageCase what = sum_of(count, ++seed);
          what.collective = collective;
          what.type = type;
          what.in_place = in_place;
          what.scaled = true;
          const Status status = stage->run(what);
          ASSERT_TRUE(status.ok()) << what.text() << ": " << status.to_string();
        }
}

// Where the result is to replace it, no other memory is needed.
TEST(GpuWorld, ScalesOntoItselfInPlace) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  StageCase what = sum_of(431);
  what.scaled = what.in_place = true;
  ASSERT_TRUE(stage->run(what).ok());
  const DeviceCall& call = *device.last_launch().call;
  EXPECT_EQ(call.memory[0], call.unscaled);
  EXPECT_EQ(call.memory[2], nullptr);
}

// A reduce_scatter in place writes a part of the input only: products must not replace the rest.
TEST(GpuWorld, ScalingLeavesTheInputOfAReduceScatter) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  std::vector<std::vector<int>> inputs(2, std::vector<int>(200, 5));
  for (const Rank rank : {0, 1}) {
    GpuCall call;
    call.collective = Collective::reduce_scatter;
    call.type = DataType::int32;
    call.input = inputs[static_cast<std::size_t>(rank)].data();
    call.output = inputs[static_cast<std::size_t>(rank)].data() + 100 * rank;
    call.count = 100;
    call.has_factor = true;
    call.factor = 3;
    ASSERT_TRUE(stage->world().rank(rank).call(call, stage->stream(rank)).ok());
  }
  ASSERT_TRUE(stage->synchronize().ok());
  for (const std::size_t rank : {0U, 1U})
    for (std::size_t i = 0; i < 200; ++i)
      EXPECT_EQ(inputs[rank][i], i / 100 == rank ? 30 : 5) << "rank " << rank << ", " << i;
}

// By device memory that is changed between calls, of a graph, too: each has the factor that lies
// there when it is made.
TEST(GpuWorld, FactorsInMemoryAreReadAtTheCall) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  std::vector<int> input(300);
  std::vector<std::vector<int>> outputs(2, std::vector<int>(input.size()));
  std::vector<int> factors(2);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<int>(i);
  const auto enqueue = [&](Rank rank) {
    GpuCall call;
    call.type = DataType::int32;
    call.input = input.data();
    call.output = outputs[static_cast<std::size_t>(rank)].data();
    call.count = input.size();
    call.has_factor = true;
    call.factor_at = &factors[static_cast<std::size_t>(rank)];
    return stage->world().rank(rank).call(call, stage->stream(rank));
  };
  const auto expect = [&] {
    ASSERT_TRUE(stage->synchronize().ok());
    for (const std::vector<int>& output : outputs)
      for (std::size_t i = 0; i < input.size(); ++i)
        ASSERT_EQ(output[i], (factors[0] + factors[1]) * input[i]) << i;
  };
  for (const int factor : {2, 5}) {
    factors = {factor, 10 * factor};
    for (Rank rank = 0; rank < 2; ++rank) ASSERT_TRUE(enqueue(rank).ok());
    expect();
  }
  std::vector<GraphHandle> graphs;
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(device.begin_capture(stage->stream(rank)).ok());
    ASSERT_TRUE(enqueue(rank).ok());
    graphs.push_back(*device.end_capture(stage->stream(rank)));
  }
  for (const int factor : {3, 7}) {
    factors = {factor, 100 * factor};
    for (Rank rank = 0; rank < 2; ++rank)
      ASSERT_TRUE(device.replay(graphs[static_cast<std::size_t>(rank)], stage->stream(rank)).ok());
    expect();
  }
  for (const GraphHandle graph : graphs) device.destroy_graph(graph);
}

TEST(GpuWorld, ServesRanksThatAreThreads) {
  HostDevice device;
  const auto stage = make_stage(device, 3);
  ASSERT_NE(stage, nullptr);
  expect_threads_are_served(*stage);
}

TEST(GpuWorld, JoinsDevicesThatReachEachOther) {
  HostDevice first({0});
  HostDevice second({1});
  const std::vector<Device*> devices{&first, &second, &second};
  auto stage = Stage::make(devices, small_options());
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  for (const bool reachable : {true, false}) {  // what is not goes through slots
    second.set_reachable(reachable);
    const Status status = (*stage)->run(sum_of(300 + (reachable ? 1 : 0)));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_GT(first.launches(), 0);
  EXPECT_EQ(second.launches(), 2 * first.launches());
}

TEST(GpuWorld, TellsPeersWhereBuffersLieIfTheyReachThem) {
  HostDevice first({0});
  HostDevice second({1});
  const std::vector<Device*> devices{&first, &second};
  for (const bool reachable : {true, false}) {
    auto stage = Stage::make(devices, small_options());
    ASSERT_TRUE(stage.ok()) << stage.status().to_string();
    first.set_reachable(reachable);
    ASSERT_TRUE((*stage)->run(sum_of(50000)).ok());
    const DeviceCall& call = *first.last_launch().call;
    EXPECT_TRUE(call.direct);
    EXPECT_EQ(call.protocol, Protocol::simple);
    EXPECT_EQ(call.shared[0].region, reachable ? kEverywhere : 0);
    EXPECT_EQ(call.shared[1].region, reachable ? kEverywhere : 0);
  }
}

TEST(GpuWorld, CutsCallsByTheirSize) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->run(sum_of(4)).ok());
  EXPECT_EQ(device.last_launch().blocks, 1U);
  EXPECT_EQ(device.last_launch().call->protocol, Protocol::low_latency);
  EXPECT_EQ(device.last_launch().call->timeout_ns, 60'000'000'000U);
  EXPECT_EQ(device.last_launch().reduces, DataType::float32);
  ASSERT_TRUE(stage->run(sum_of(5000)).ok());
  EXPECT_EQ(device.last_launch().blocks, 2U);
  EXPECT_EQ(device.last_launch().call->protocol, Protocol::simple);
  StageCase what = sum_of(10);
  what.collective = Collective::all_gather;
  ASSERT_TRUE(stage->run(what).ok());
  EXPECT_EQ(device.last_launch().reduces, std::nullopt);
}

TEST(GpuWorld, TakesTheAlgorithmOfThatName) {
  HostDevice device;
  for (const char* const algorithm : {"ring", "tree", "direct"}) {
    GpuOptions options = small_options();
    options.algorithm = algorithm;
    const auto stage = make_stage(device, 4, options);
    ASSERT_NE(stage, nullptr);
    const Status status = stage->run(sum_of(200));
    EXPECT_TRUE(status.ok()) << algorithm << ": " << status.to_string();
  }
  GpuOptions options = small_options();
  options.algorithm = "rang";
  const auto stage = make_stage(device, 2, options);
  ASSERT_NE(stage, nullptr);
  EXPECT_EQ(stage->run(sum_of(4)).code(), StatusCode::invalid_argument);
}

// ---- What is kept from call to call ----

TEST(GpuWorld, TellsTheDeviceNothingOfACallThatIsMadeAgain) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->run(sum_of(40)).ok());
  const Launch before = device.last_launch();
  ASSERT_TRUE(stage->refill(2).ok());
  const int copies = device.copies_in();
  ASSERT_TRUE(stage->launch_all().ok());
  ASSERT_TRUE(stage->synchronize().ok());
  EXPECT_EQ(device.copies_in(), copies);
  EXPECT_EQ(device.last_launch().call, before.call);
  const Status status = stage->judge();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(GpuWorld, TellsTheDeviceAProgramOnce) {
  HostDevice device;
  GpuOptions options = small_options();
  options.algorithm = "ring";
  options.records = 64;
  const auto stage = make_stage(device, 2, options);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->run(sum_of(300)).ok());
  const int allocations = device.allocations();
  for (std::size_t count = 1; count < 300; count += 20) ASSERT_TRUE(stage->run(sum_of(count)).ok());
  EXPECT_EQ(device.allocations(), allocations);
}

TEST(GpuWorld, ReusesRecordsOfCallsThatAreOver) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  for (std::uint64_t n = 1; n <= 200; ++n) {
    const Status status = stage->run(sum_of(n, n));
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  // A mark in every 32 launches says which are over.
  EXPECT_LE(stage->world().rank(0).records(), 80U);
  EXPECT_GE(stage->world().rank(0).records(), 4U);
}

TEST(GpuWorld, KeepsRecordsOfCallsThatAreUnderWay) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(300)).ok());
  // A hundred different calls of one rank before the first one of the other.
  for (Rank rank = 0; rank < 2; ++rank)
    for (std::size_t n = 1; n <= 100; ++n) {
      GpuCall call = stage->call_of(rank);
      call.count = n;
      ASSERT_TRUE(stage->world().rank(rank).call(call, stage->stream(rank)).ok());
    }
  EXPECT_GE(stage->world().rank(0).records(), 100U);
  ASSERT_TRUE(stage->launch_all().ok());
  const Status status = stage->synchronize();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(GpuWorld, ScratchMemoryGrowsAndIsKept) {
  HostDevice device;
  GpuOptions options = small_options();
  options.algorithm = "halving";
  const auto stage = make_stage(device, 4, options);
  ASSERT_NE(stage, nullptr);
  StageCase what = sum_of(10);
  what.collective = Collective::reduce_scatter;
  const std::byte* last = nullptr;
  for (const std::size_t count : {100U, 150U, 180U, 2000U, 100U}) {
    what.count = count;
    what.seed = count;
    const Status status = stage->run(what);
    ASSERT_TRUE(status.ok()) << status.to_string();
    const std::byte* const scratch = device.last_launch().call->memory[2];
    ASSERT_NE(scratch, nullptr);
    if (count == 180U) {
      EXPECT_EQ(scratch, last);  // for 150 there was made twice as much as before
    }
    last = scratch;
  }
}

TEST(GpuWorld, GivesAllMemoryBack) {
  HostDevice device;
  make_stage(device, 3)->run(sum_of(77)).ok();
  EXPECT_EQ(device.allocations(), 0);
}

TEST(GpuWorld, IsNotMadeWithoutMemory) {
  HostDevice device;
  device.fail_next_allocation();
  const auto world = GpuWorld::make(on(device, 2), small_options());
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.status().code(), StatusCode::system_error);
  EXPECT_EQ(device.allocations(), 0);
}

// ---- Graphs and streams ----

TEST(GpuWorld, ACapturedGraphReplaysWithNewData) {
  HostDevice device;
  const auto stage = make_stage(device, 3);
  ASSERT_NE(stage, nullptr);
  for (const std::size_t count : {5U, 400U}) {  // of low latency, and direct
    ASSERT_TRUE(stage->set(sum_of(count)).ok());
    std::vector<GraphHandle> graphs;
    const int launches = device.launches();
    for (Rank rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(device.begin_capture(stage->stream(rank)).ok());
      ASSERT_TRUE(stage->launch(rank).ok());
      graphs.push_back(*device.end_capture(stage->stream(rank)));
    }
    const int copies = device.copies_in();
    for (std::uint64_t replay = 0; replay < 3; ++replay) {
      ASSERT_TRUE(stage->refill(10 + replay).ok());
      for (Rank rank = 0; rank < 3; ++rank)
        ASSERT_TRUE(
            device.replay(graphs[static_cast<std::size_t>(rank)], stage->stream(rank)).ok());
      ASSERT_TRUE(stage->synchronize().ok());
      const Status status = stage->judge();
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_EQ(device.copies_in(), copies + 3 * 3);  // the data, and nothing else
    EXPECT_EQ(device.launches(), launches + 3);     // nobody asked for a replay
    for (const GraphHandle graph : graphs) device.destroy_graph(graph);
  }
}

TEST(GpuWorld, WhatAGraphWasCapturedWithIsNeverReused) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(9)).ok());
  std::vector<GraphHandle> graphs;
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(device.begin_capture(stage->stream(rank)).ok());
    ASSERT_TRUE(stage->launch(rank).ok());
    graphs.push_back(*device.end_capture(stage->stream(rank)));
  }
  const GpuCall captured = stage->call_of(0);
  for (std::size_t n = 1; n <= 150; ++n) {
    for (Rank rank = 0; rank < 2; ++rank) {
      GpuCall call = stage->call_of(rank);
      call.count = n % 8 + 1;  // what was captured has 9
      call.op = kAllReduceOps[n % std::size(kAllReduceOps)];
      call.root = static_cast<Rank>(n % 2);
      ASSERT_TRUE(stage->world().rank(rank).call(call, stage->stream(rank)).ok());
    }
    ASSERT_TRUE(stage->synchronize().ok());  // so that its record may be reused
  }
  ASSERT_TRUE(stage->synchronize().ok());
  ASSERT_EQ(captured, stage->call_of(0));
  ASSERT_TRUE(stage->refill(5).ok());
  for (Rank rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(device.replay(graphs[static_cast<std::size_t>(rank)], stage->stream(rank)).ok());
  ASSERT_TRUE(stage->synchronize().ok());
  const Status status = stage->judge();
  EXPECT_TRUE(status.ok()) << status.to_string();
  for (const GraphHandle graph : graphs) device.destroy_graph(graph);
}

TEST(GpuWorld, CallsOfARankFollowEachOtherAcrossStreams) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  const StreamHandle other = *device.make_stream();
  ASSERT_TRUE(stage->set(sum_of(300)).ok());
  for (int n = 0; n < 8; ++n)
    for (Rank rank = 0; rank < 2; ++rank) {
      const bool elsewhere = rank == 0 && n % 2 == 0;
      ASSERT_TRUE(stage->world()
                      .rank(rank)
                      .call(stage->call_of(rank), elsewhere ? other : stage->stream(rank))
                      .ok());
    }
  const Status status = stage->synchronize();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(device.synchronize(other).ok());
  EXPECT_TRUE(stage->judge().ok());
}

// What follows a rank's last call must not ask its stream, which may be gone by then.
TEST(GpuWorld, CallsFollowThoseOfAStreamThatIsGone) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(300)).ok());
  for (int n = 0; n < 4; ++n) {
    const StreamHandle gone = *device.make_stream();
    ASSERT_TRUE(stage->world().rank(0).call(stage->call_of(0), gone).ok());
    ASSERT_TRUE(stage->launch(1).ok());
    device.destroy_stream(gone);
  }
  ASSERT_TRUE(stage->launch_all().ok());
  const Status status = stage->synchronize();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(stage->judge().ok());
}

// A mark that is made only then would become a part of the graph.
TEST(GpuWorld, CallsFollowThoseOfAStreamThatIsBeingCaptured) {
  HostDevice device;
  const auto stage = make_stage(device, 1);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->run(sum_of(10)).ok());
  const StreamHandle other = *device.make_stream();
  ASSERT_TRUE(device.begin_capture(stage->stream(0)).ok());
  ASSERT_TRUE(stage->launch(0).ok());
  ASSERT_TRUE(stage->world().rank(0).call(stage->call_of(0), other).ok());
  device.destroy_graph(*device.end_capture(stage->stream(0)));
  EXPECT_TRUE(device.synchronize(other).ok());
  EXPECT_TRUE(stage->judge().ok());
}

TEST(GpuWorld, SaysWhetherAllCallsOfARankAreOver) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(300)).ok());
  GpuRank& rank = stage->world().rank(0);
  EXPECT_TRUE(*rank.is_idle());
  ASSERT_TRUE(stage->launch(0).ok());
  EXPECT_FALSE(*rank.is_idle());  // its peer has not come
  ASSERT_TRUE(stage->launch(1).ok());
  ASSERT_TRUE(stage->synchronize().ok());
  EXPECT_TRUE(*rank.is_idle());
}

// Numbers that say from whom, to whom and which they are: all that a rank sends, or receives.
std::vector<int> exchanged(Rank rank, int ranks, std::size_t count, bool sent) {
  std::vector<int> values;
  for (Rank peer = 0; peer < ranks; ++peer)
    for (std::size_t i = 0; i < count; ++i)
      values.push_back((sent ? rank : peer) * 1'000'000 + (sent ? peer : rank) * 100'000 +
                       static_cast<int>(i));
  return values;
}

TEST(GpuWorld, ExchangesInPlace) {
  HostDevice device;
  for (const int ranks : {1, 2, 3, 5})
    for (const std::size_t count : {0U, 1U, 13U, 400U}) {
      const auto stage = make_stage(device, ranks);
      ASSERT_NE(stage, nullptr);
      std::vector<std::vector<int>> values;
      for (Rank rank = 0; rank < ranks; ++rank)
        values.push_back(exchanged(rank, ranks, count, true));
      for (int time = 0; time < 2; ++time) {  // the second time it is known
        for (Rank rank = 0; rank < ranks; ++rank) {
          auto& mine = values[static_cast<std::size_t>(rank)];
          const auto sent = exchanged(rank, ranks, count, true);
          std::copy(sent.begin(), sent.end(), mine.begin());
          GpuCall call;
          call.collective = Collective::all_to_all;
          call.type = DataType::int32;
          call.input = call.output = mine.data();
          call.count = count;
          const Status status = stage->world().rank(rank).call(call, stage->stream(rank));
          ASSERT_TRUE(status.ok()) << status.to_string();
        }
        ASSERT_TRUE(stage->synchronize().ok());
        for (Rank rank = 0; rank < ranks; ++rank)
          EXPECT_EQ(values[static_cast<std::size_t>(rank)], exchanged(rank, ranks, count, false))
              << "rank " << rank << " of " << ranks;
      }
    }
}

}  // namespace
}  // namespace tutti::runtime::gpu
