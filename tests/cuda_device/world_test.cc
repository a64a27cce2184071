// Calls of device worlds on devices by the CUDA driver, on the stand-in for CUDA: from planning to
// the last byte, as tests/gpu_world has them over a device of its own.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "collectives/contract.hpp"
#include "cuda_device/cuda_devices.hpp"
#include "gpu_world/joint_graph.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

#ifdef TUTTI_SANITIZED
constexpr int kOneIn = 8;
#else
constexpr int kOneIn = 1;
#endif

std::string name_of(const ::testing::TestParamInfo<std::vector<int>>& info) {
  std::string name = "On";
  for (const int ordinal : info.param) name += std::to_string(ordinal);
  return name;
}

class CudaWorldCalls : public OnCudaDevices,
                       public ::testing::WithParamInterface<std::vector<int>> {};

TEST_P(CudaWorldCalls, GiveWhatTheContractsSay) {
  constexpr std::size_t kCounts[] = {0, 1, 7, 61, 1009};
  const auto stage = stage_on(GetParam());
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
      what.root = number % stage->ranks();
      what.count = collective == Collective::barrier ? 0 : count;
      what.in_place = number % 2 == 0 && collectives::may_run_in_place(collective);
      const Status status = stage->run(what);
      ASSERT_TRUE(status.ok()) << what.text() << ": " << status.to_string();
    }
}

using Seats = std::vector<int>;
INSTANTIATE_TEST_SUITE_P(Devices, CudaWorldCalls,
                         ::testing::Values(Seats{0}, Seats{3}, Seats{0, 0}, Seats{1, 1, 1},
                                           Seats{0, 0, 0, 0}, Seats{0, 1}, Seats{2, 1, 2},
                                           Seats{3, 2, 1, 0}),
                         name_of);

class CudaWorld : public OnCudaDevices {};

TEST_F(CudaWorld, ReducesAllTypesByAllOperations) {
  const auto stage = stage_on({0, 0});
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

TEST_F(CudaWorld, ServesRanksThatAreThreads) {
  const auto stage = stage_on({0, 1, 0});
  ASSERT_NE(stage, nullptr);
  expect_threads_are_served(*stage);
}

TEST_F(CudaWorld, WorksWithItsOwnChoiceOfEverything) {
  const auto before = tutti::testing::counts();
  for (const std::vector<int>& ordinals : {std::vector<int>{0, 0, 0, 0}, std::vector<int>{0, 1}}) {
    const auto stage = stage_on(ordinals, GpuOptions{});
    ASSERT_NE(stage, nullptr);
    EXPECT_EQ(stage->world().shape().channels, ordinals[1] == 0 ? 8U : 32U);
    for (const std::size_t count : {3U, 100000U}) {
      const Status status = stage->run(sum_of(count));
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }
  EXPECT_EQ(tutti::testing::counts().device_memory, before.device_memory);
}

TEST_F(CudaWorld, TakesTheAlgorithmOfThatName) {
  for (const char* const algorithm : {"ring", "tree", "direct"}) {
    GpuOptions options = small_options();
    options.algorithm = algorithm;
    const auto stage = stage_on({0, 1, 1, 0}, options);
    ASSERT_NE(stage, nullptr);
    const Status status = stage->run(sum_of(200));
    EXPECT_TRUE(status.ok()) << algorithm << ": " << status.to_string();
  }
}

TEST_F(CudaWorld, KeepsRecordsOfCallsByEvents) {
  const auto stage = stage_on({0, 0});
  ASSERT_NE(stage, nullptr);
  for (std::uint64_t n = 1; n <= 200; ++n) {
    const Status status = stage->run(sum_of(n, n));
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_LE(stage->world().rank(0).records(), 80U);
}

// As a program has it that captures a whole step: what the ranks do in it they must do at once.
TEST_F(CudaWorld, OneGraphHoldsTheCallsOfAllRanks) {
  const auto stage = stage_on({0, 0, 0});
  ASSERT_NE(stage, nullptr);
  Device& on = device();
  const std::vector<StreamHandle> streams{stage->stream(0), stage->stream(1), stage->stream(2)};
  for (const std::size_t count : {5U, 400U}) {  // of low latency, and direct
    ASSERT_TRUE(stage->set(sum_of(count)).ok());
    const auto graph = capture_jointly(on, streams, [&] {
      Status status;
      for (int call = 0; call < 10 && status.ok(); ++call) status = stage->launch_all();
      return status;
    });
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    EXPECT_FALSE(stage->judge().ok()) << "nothing has happened yet";
    for (std::uint64_t replay = 0; replay < 3; ++replay) {
      ASSERT_TRUE(stage->refill(10 + replay).ok());
      ASSERT_TRUE(on.replay(*graph, streams.front()).ok());
      ASSERT_TRUE(stage->world().rank(0).synchronize(streams.front()).ok());
      const Status status = stage->judge();
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    on.destroy_graph(*graph);
  }
}

TEST_F(CudaWorld, AGraphThatFailsToBeCapturedLeavesStreamsAsTheyWere) {
  const auto stage = stage_on({0, 0});
  ASSERT_NE(stage, nullptr);
  const std::vector<StreamHandle> streams{stage->stream(0), stage->stream(1)};
  const Status failure(StatusCode::aborted, "on purpose");
  EXPECT_EQ(capture_jointly(device(), streams, [&] { return failure; }).status().code(),
            StatusCode::aborted);
  const Status status = stage->run(sum_of(7));
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(CudaWorld, ACapturedGraphReplaysWithNewData) {
  for (const std::vector<int>& ordinals : {std::vector<int>{0, 0, 0}, std::vector<int>{1, 0, 2}}) {
    const auto stage = stage_on(ordinals);
    ASSERT_NE(stage, nullptr);
    for (const std::size_t count : {5U, 400U}) {  // of low latency, and direct
      ASSERT_TRUE(stage->set(sum_of(count)).ok());
      std::vector<GraphHandle> graphs;
      for (Rank rank = 0; rank < 3; ++rank) {
        Device& on = stage->world().rank(rank).device();
        ASSERT_TRUE(on.begin_capture(stage->stream(rank)).ok());
        ASSERT_TRUE(stage->launch(rank).ok());
        const auto graph = on.end_capture(stage->stream(rank));
        ASSERT_TRUE(graph.ok()) << graph.status().to_string();
        graphs.push_back(*graph);
      }
      EXPECT_FALSE(stage->judge().ok()) << "nothing has happened yet";
      for (std::uint64_t replay = 0; replay < 3; ++replay) {
        ASSERT_TRUE(stage->refill(10 + replay).ok());
        for (Rank rank = 0; rank < 3; ++rank)
          ASSERT_TRUE(stage->world()
                          .rank(rank)
                          .device()
                          .replay(graphs[static_cast<std::size_t>(rank)], stage->stream(rank))
                          .ok());
        ASSERT_TRUE(stage->synchronize().ok());
        const Status status = stage->judge();
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
      for (Rank rank = 0; rank < 3; ++rank)
        stage->world().rank(rank).device().destroy_graph(graphs[static_cast<std::size_t>(rank)]);
    }
  }
}

// ---- What does not fit ----

TEST_F(CudaWorld, RefusesMoreBlocksThanTheDeviceHolds) {
  GpuOptions options = small_options();
  options.threads = 512;
  options.channels = 11;
  const auto world = GpuWorld::make(on(device(), 3), options);
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.status().code(), StatusCode::unsupported);
  EXPECT_THAT(world.status().message(),
              AllOf(HasSubstr("CUDA stand-in 0"), HasSubstr("33 blocks of 512 threads"),
                    HasSubstr("only 32 fit"), HasSubstr("use at most 10 channels")));
  options.threads = 256;
  EXPECT_TRUE(GpuWorld::make(on(device(), 3), options).ok());
}

TEST_F(CudaWorld, RefusesMoreRanksThanStreamsRunAtOnce) {
  const auto world = GpuWorld::make(on(device(), 8), small_options());
  ASSERT_FALSE(world.ok());
  EXPECT_THAT(world.status().message(), HasSubstr("those of 7 streams"));
}

// Worlds of which two ranks fill a device.
GpuOptions half_a_device() {
  GpuOptions options = small_options();
  options.channels = 16;
  options.threads = 512;
  return options;
}

// A call of theirs with a message on every channel.
constexpr std::size_t kOnAllChannels = 3000;

// Whether so many came to be on devices.
bool wait_for_blocks(std::size_t blocks) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (tutti::testing::counts().blocks != blocks) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// What tests of co-residency count on: halves of two worlds fill the device, and wait for the
// others, which find no room.
TEST_F(CudaWorld, HalvesOfWorldsThatDoNotFitTogetherWaitUntilTheDeadline) {
  GpuOptions options = half_a_device();
  options.timeout = std::chrono::seconds(2);
  const auto first = stage_on({0, 0}, options);
  const auto second = stage_on({0, 0}, options);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  for (Stage* const stage : {first.get(), second.get()}) {
    ASSERT_TRUE(stage->set(sum_of(kOnAllChannels)).ok());
    ASSERT_TRUE(stage->launch(0).ok());
  }
  ASSERT_TRUE(wait_for_blocks(32));
  for (Stage* const stage : {first.get(), second.get()}) ASSERT_TRUE(stage->launch(1).ok());
  const Status status = first->world().rank(0).synchronize(first->stream(0));
  EXPECT_EQ(status.code(), StatusCode::timeout) << status.to_string();
  EXPECT_EQ(status.culprit(), 1) << status.to_string();
  EXPECT_FALSE(first->synchronize().ok());
  static_cast<void>(second->synchronize());
}

// ---- Failure ----

TEST_F(CudaWorld, NamesARankThatNeverComes) {
  GpuOptions options = small_options();
  options.timeout = std::chrono::milliseconds(300);
  const auto stage = stage_on({0, 0, 1}, options);
  ASSERT_NE(stage, nullptr);
  expect_missing_rank_is_named(*stage);
}

TEST_F(CudaWorld, AbortEndsWhatIsUnderWay) {
  const auto stage = stage_on({0, 1, 0});
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(500)).ok());
  for (int n = 0; n < 5; ++n)
    for (const Rank rank : {0, 2}) ASSERT_TRUE(stage->launch(rank).ok());
  EXPECT_FALSE(*device().reached(stage->stream(0)));
  std::thread aborter([&] { EXPECT_TRUE(stage->world().abort().ok()); });
  aborter.join();
  for (const Rank rank : {0, 2}) {
    const Status status = stage->world().rank(rank).synchronize(stage->stream(rank));
    EXPECT_EQ(status.code(), StatusCode::aborted) << status.to_string();
  }
  EXPECT_EQ(stage->launch(1).code(), StatusCode::aborted);
}

TEST_F(CudaWorld, ItsEndEndsWhatWouldWaitForEver) {
  GpuOptions options = small_options();
  options.timeout = std::chrono::seconds(0);
  const auto stage = stage_on({0, 1}, options);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(500)).ok());
  ASSERT_TRUE(stage->launch(0).ok());
}

// Memory is prepared for another world while kernels fill the device and wait: nobody who does so
// may have to wait for them, because an abort would wait for him.
TEST_F(CudaWorld, ADeviceThatIsFullCanBePreparedAndToldOfAnAbort) {
  const auto stage = stage_on({0, 0, 1}, half_a_device());
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(kOnAllChannels)).ok());
  for (const Rank rank : {0, 1}) ASSERT_TRUE(stage->launch(rank).ok());
  ASSERT_TRUE(wait_for_blocks(32));
  std::byte* const memory = *device().allocate(5 << 20);
  std::thread other([&] { EXPECT_TRUE(device().zero(memory, 5 << 20).ok()); });
  other.join();
  EXPECT_FALSE(*device().reached(stage->stream(0))) << "it has waited for the deadline";
  EXPECT_TRUE(stage->world().abort().ok());
  EXPECT_EQ(stage->synchronize().code(), StatusCode::aborted);
  device().deallocate(memory);
}

// As on a device: what looks like a copy is a kernel where it does not leave the device.
TEST_F(CudaWorld, WhatFillsOrCopiesInsideWaitsForRoom) {
  const auto stage = stage_on({0, 0, 1}, half_a_device());
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(kOnAllChannels)).ok());
  std::byte* const memory = *device().allocate(64);
  const StreamHandle copies = *device().make_stream();
  const StreamHandle fills = *device().make_stream();
  for (const Rank rank : {0, 1}) ASSERT_TRUE(stage->launch(rank).ok());
  ASSERT_TRUE(wait_for_blocks(32));
  ASSERT_TRUE(device().copy(memory, memory + 32, 32, copies).ok());
  const auto fill = reinterpret_cast<decltype(&cuMemsetD8Async)>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemsetD8Async"));
  ASSERT_EQ(fill(reinterpret_cast<std::uintptr_t>(memory), 0, 32,
                 static_cast<transport::cuda::Stream>(fills)),
            0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(*device().reached(copies));
  EXPECT_FALSE(*device().reached(fills));
  EXPECT_TRUE(stage->world().abort().ok());
  EXPECT_TRUE(device().synchronize(copies).ok());
  EXPECT_TRUE(device().synchronize(fills).ok());
  device().destroy_stream(copies);
  device().destroy_stream(fills);
  device().deallocate(memory);
}

// To wait for a device would break what the program is capturing on it.
TEST_F(CudaWorld, ItsEndLeavesACaptureOfTheProgramAlone) {
  auto stage = stage_on({0, 1});
  ASSERT_NE(stage, nullptr);
  EXPECT_TRUE(stage->run(sum_of(100)).ok());
  const StreamHandle other = *device().make_stream();
  ASSERT_TRUE(device().begin_capture(other).ok());
  stage.reset();
  const auto graph = device().end_capture(other);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  if (graph.ok()) device().destroy_graph(*graph);
  device().destroy_stream(other);
}

// A program that ends with kernels on its devices does end; the stand-in sees to that.
using CudaWorldDeathTest = CudaWorld;

TEST_F(CudaWorldDeathTest, AProgramEndsWhateverItsKernelsWaitFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  GpuOptions options = half_a_device();
  options.timeout = std::chrono::seconds(0);
  const auto leave = [&] {
    const auto stage = stage_on({0, 0, 1}, options);
    if (!stage->set(sum_of(kOnAllChannels)).ok()) std::exit(1);
    for (const Rank rank : {0, 1})
      if (!stage->launch(rank).ok()) std::exit(2);
    if (!wait_for_blocks(32)) std::exit(4);
    const auto third = stage_on({0}, options);  // which finds no room
    if (!third->set(sum_of(kOnAllChannels)).ok() || !third->launch(0).ok()) std::exit(3);
    std::fprintf(stderr, "it leaves\n");
    std::exit(0);
  };
  EXPECT_EXIT(leave(), ::testing::ExitedWithCode(0),
              AllOf(HasSubstr("it leaves"), Not(HasSubstr("is still at work"))));
}

}  // namespace
}  // namespace tutti::runtime::gpu
