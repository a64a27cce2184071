// What cannot be done on devices, and what goes wrong there: refused or told by name, never a hang.
#include <gmock/gmock.h>

#include <thread>

#include "gpu_world/host_device.hpp"
#include "gpu_world/stage.hpp"
#include "gpu_world/worlds.hpp"
#include "runtime/gpu/host/world.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(GpuWorld, RefusesMoreBlocksThanTheDeviceHolds) {
  HostDeviceOptions narrow;
  narrow.blocks = 7;
  HostDevice device(narrow);
  const auto world = GpuWorld::make(on(device, 4), small_options());
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.status().code(), StatusCode::unsupported);
  EXPECT_THAT(world.status().message(),
              AllOf(HasSubstr("4 ranks of 2 channels"), HasSubstr("8 blocks of 2 threads"),
                    HasSubstr("only 7 fit"), HasSubstr("use at most 1 channels")));
  GpuOptions options = small_options();
  options.channels = 0;  // what fits
  auto stage = Stage::make(on(device, 4), options);
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  EXPECT_EQ((*stage)->world().shape().channels, 1U);
  EXPECT_TRUE((*stage)->run(sum_of(900)).ok());
}

TEST(GpuWorld, RefusesMoreRanksThanTheDeviceHolds) {
  HostDeviceOptions narrow;
  narrow.blocks = 3;
  HostDevice device(narrow);
  GpuOptions options = small_options();
  options.channels = 0;
  const auto world = GpuWorld::make(on(device, 4), options);
  ASSERT_FALSE(world.ok());
  EXPECT_THAT(world.status().message(), HasSubstr("use at most 3 ranks"));
}

TEST(GpuWorld, RefusesMoreRanksThanStreamsRunAtOnce) {
  HostDeviceOptions narrow;
  narrow.streams = 2;
  HostDevice device(narrow);
  const auto world = GpuWorld::make(on(device, 3), small_options());
  ASSERT_FALSE(world.ok());
  EXPECT_THAT(world.status().message(), HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS"));
}

TEST(GpuWorld, RefusesDevicesThatDoNotReachEachOther) {
  HostDevice first({0});
  HostDeviceOptions alone;
  alone.id = 1;
  alone.reaches_peers = false;
  HostDevice second(alone);
  const std::vector<Device*> devices{&first, &second};
  const auto world = GpuWorld::make(devices, small_options());
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.status().code(), StatusCode::unsupported);
  EXPECT_THAT(world.status().message(), HasSubstr("cannot load and store the memory"));
}

TEST(GpuWorld, RefusesRanksOfOtherProcesses) {
  HostDevice device;
  const std::vector<Device*> devices{&device, nullptr};
  const auto world = GpuWorld::make(devices, small_options());
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.status().code(), StatusCode::unsupported);
  EXPECT_EQ(world.status().culprit(), 1);
  EXPECT_THAT(world.status().message(), HasSubstr("join a world one by one"));
}

TEST(GpuWorld, RefusesOptionsThatMakeNoSense) {
  HostDevice device;
  const auto refused = [&](auto change) {
    GpuOptions options = small_options();
    change(options);
    const auto world = GpuWorld::make(on(device, 2), options);
    return !world.ok() && world.status().code() == StatusCode::invalid_argument;
  };
  EXPECT_TRUE(refused([](GpuOptions& o) { o.threads = 0; }));
  EXPECT_TRUE(refused([](GpuOptions& o) { o.threads = 1024; }));
  EXPECT_TRUE(refused([](GpuOptions& o) { o.channels = kChannelsMax + 1; }));
  EXPECT_TRUE(refused([](GpuOptions& o) { o.slots = 1; }));
  EXPECT_TRUE(refused([](GpuOptions& o) { o.slot_bytes = 100; }));
  EXPECT_TRUE(refused([](GpuOptions& o) { o.flagged_bytes = 4; }));
  EXPECT_TRUE(refused([](GpuOptions& o) { o.records = 0; }));
  EXPECT_TRUE(refused([](GpuOptions& o) { o.timeout = std::chrono::nanoseconds(-1); }));
  // As 32 bits they would be 16 and 8.
  EXPECT_TRUE(refused([](GpuOptions& o) { o.slot_bytes = (std::size_t{1} << 32) + 16; }));
  EXPECT_TRUE(refused([](GpuOptions& o) { o.flagged_bytes = (std::size_t{1} << 32) + 8; }));
  EXPECT_FALSE(GpuWorld::make({}, small_options()).ok());
}

TEST(GpuWorld, ACallThatCannotBeMadeBreaksNothing) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(16)).ok());
  const auto refused = [&](auto change) {
    GpuCall call = stage->call_of(0);
    change(call);
    return stage->world().rank(0).call(call, stage->stream(0));
  };
  const auto add = [](void* memory, std::size_t bytes) -> void* {
    return static_cast<std::byte*>(memory) + bytes;
  };
  Status status = refused([&](GpuCall& call) { call.output = add(call.output, 1); });
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("multiple of 4 bytes"));
  status = refused([](GpuCall& call) {
    call.collective = Collective::broadcast;
    call.root = 2;
  });
  EXPECT_THAT(status.message(), HasSubstr("root 2 is not one of the 2 ranks"));
  status = refused([](GpuCall& call) { call.count = kCountMax + 1; });
  EXPECT_THAT(status.message(), HasSubstr("too many"));
  status = refused([&](GpuCall& call) {
    call.collective = Collective::all_to_all;
    call.output = add(const_cast<void*>(call.input), 8);
  });
  EXPECT_THAT(status.message(), HasSubstr("use two buffers"));
  status = refused([&](GpuCall& call) { call.output = add(const_cast<void*>(call.input), 4); });
  EXPECT_THAT(status.message(), HasSubstr("overlap without being equal"));
  status = refused([](GpuCall& call) { call.input = nullptr; });
  EXPECT_THAT(status.message(), HasSubstr("input is null"));
  status = refused([](GpuCall& call) { call.output = nullptr; });
  EXPECT_THAT(status.message(), HasSubstr("output is null"));
  device.fail_next_allocation();
  status = refused([](GpuCall& call) { call.op = ReduceOp::max; });
  EXPECT_EQ(status.code(), StatusCode::system_error);
  EXPECT_TRUE(stage->run(sum_of(16)).ok());
}

TEST(GpuWorld, SaysThatMessagesDoNotFit) {
  HostDevice device;
  GpuOptions options = small_options();
  options.slot_bytes = 32;
  options.algorithm = "bruck";
  const auto stage = make_stage(device, 8, options);
  ASSERT_NE(stage, nullptr);
  StageCase what = sum_of(64);
  what.collective = Collective::all_gather;
  const Status status = stage->run(what);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.code(), StatusCode::internal) << status.to_string();
}

// ---- Failure ----

TEST(GpuWorld, NamesARankThatNeverComes) {
  HostDevice device;
  GpuOptions options = small_options();
  options.timeout = std::chrono::milliseconds(300);
  const auto stage = make_stage(device, 3, options);
  ASSERT_NE(stage, nullptr);
  expect_missing_rank_is_named(*stage);
  // It stays so, for who comes late, too.
  ASSERT_TRUE(stage->launch(1).ok());
  EXPECT_FALSE(stage->world().rank(1).synchronize(stage->stream(1)).ok());
  EXPECT_FALSE(stage->launch(0).ok());
}

TEST(GpuWorld, MismatchedCallsAreAnError) {
  HostDevice device;
  for (const std::size_t count : {6U, 400U})
    for (const bool is_scaled : {false, true}) {
      const auto stage = make_stage(device, 2);
      ASSERT_NE(stage, nullptr);
      ASSERT_TRUE(stage->set(sum_of(count)).ok());
      ASSERT_TRUE(stage->launch(0).ok());
      GpuCall other = stage->call_of(1);
      other.has_factor = is_scaled;
      if (!is_scaled) other.op = ReduceOp::prod;
      ASSERT_TRUE(stage->world().rank(1).call(other, stage->stream(1)).ok());
      const Status status = stage->synchronize();
      EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("ranks made different calls"));
    }
}

TEST(GpuWorld, OnlyWhatIsSummedHasAFactor) {
  HostDevice device;
  const auto stage = make_stage(device, 1);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(6)).ok());
  GpuCall call = stage->call_of(0);
  call.has_factor = true;
  call.op = ReduceOp::max;
  EXPECT_THAT(stage->world().rank(0).call(call, stage->stream(0)).message(), HasSubstr("factor"));
  call.op = ReduceOp::sum;
  call.collective = Collective::broadcast;
  EXPECT_THAT(stage->world().rank(0).call(call, stage->stream(0)).message(), HasSubstr("factor"));
}

// One waits for words with flags, the other one for an arrival record: neither ever comes.
TEST(GpuWorld, MismatchedCallsThatTravelDifferentlyAreAnError) {
  HostDevice device;
  const auto stage = make_stage(device, 2);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(5000)).ok());
  ASSERT_TRUE(stage->launch(0).ok());
  GpuCall other = stage->call_of(1);
  other.count = 4;
  ASSERT_TRUE(stage->world().rank(1).call(other, stage->stream(1)).ok());
  for (const Rank rank : {0, 1}) {
    const Status status = stage->world().rank(rank).synchronize(stage->stream(rank));
    EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
  }
}

TEST(GpuWorld, AbortEndsWhatIsUnderWay) {
  HostDevice device;
  const auto stage = make_stage(device, 3);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(500)).ok());
  for (int n = 0; n < 5; ++n)
    for (const Rank rank : {0, 2}) ASSERT_TRUE(stage->launch(rank).ok());
  std::thread aborter([&] { EXPECT_TRUE(stage->world().abort().ok()); });
  aborter.join();
  for (Rank rank = 0; rank < 3; ++rank) {
    const Status status = stage->world().rank(rank).synchronize(stage->stream(rank));
    EXPECT_EQ(status.code(), StatusCode::aborted) << status.to_string();
  }
  EXPECT_EQ(stage->launch(1).code(), StatusCode::aborted);
}

TEST(GpuWorld, ItsEndEndsWhatWouldWaitForEver) {
  HostDevice device;
  GpuOptions options = small_options();
  options.timeout = std::chrono::seconds(0);
  const auto stage = make_stage(device, 2, options);
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(500)).ok());
  ASSERT_TRUE(stage->launch(0).ok());
}

// A kernel that leaves still tells its peers why, in memory on their devices.
TEST(GpuWorld, ItsEndKeepsAllMemoryUntilAllKernelsHaveLeft) {
  HostDevice first({0});
  HostDevice second({1});
  const std::vector<Device*> devices{&first, &second};
  auto stage = Stage::make(devices, small_options());
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  ASSERT_TRUE((*stage)->set(sum_of(500)).ok());
  ASSERT_TRUE((*stage)->launch(1).ok());  // and rank 0 never comes
  const StreamHandle stream = (*stage)->stream(1);
  bool all_had_left = true;
  first.at_deallocation([&] { all_had_left = all_had_left && *second.reached(stream); });
  stage->reset();
  EXPECT_TRUE(all_had_left);
}

}  // namespace
}  // namespace tutti::runtime::gpu
