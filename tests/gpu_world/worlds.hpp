// worlds.hpp: small worlds on threads, and small calls for them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gpu_world/host_device.hpp"
#include "gpu_world/stage.hpp"

namespace tutti::runtime::gpu {

// So small that calls of a few hundred elements have several slices and channels.
inline GpuOptions small_options() {
  GpuOptions options;
  options.channels = 2;
  options.threads = 2;
  options.slots = 2;
  options.slot_bytes = 256;
  options.flagged_bytes = 64;
  options.channel_bytes = 256;
  options.timeout = std::chrono::seconds(60);
  options.records = 4;
  return options;
}

inline std::vector<Device*> on(Device& device, int ranks) {
  return std::vector<Device*>(static_cast<std::size_t>(ranks), &device);
}

inline std::unique_ptr<Stage> make_stage(HostDevice& device, int ranks,
                                         const GpuOptions& options = small_options()) {
  auto stage = Stage::make(on(device, ranks), options);
  EXPECT_TRUE(stage.ok()) << stage.status().to_string();
  return stage.ok() ? *std::move(stage) : nullptr;
}

inline StageCase sum_of(std::size_t count, std::uint64_t seed = 1) {
  StageCase what;
  what.count = count;
  what.seed = seed;
  return what;
}

// ---- What holds on whatever device ----

// Requires  three ranks.
inline void expect_threads_are_served(Stage& stage) {
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    ASSERT_TRUE(stage.set(sum_of(100 * seed, seed)).ok());
    std::vector<std::thread> threads;
    std::vector<Status> statuses(3);
    for (Rank rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        Status& status = statuses[static_cast<std::size_t>(rank)];
        status = stage.launch(rank);
        if (status.ok()) status = stage.world().rank(rank).synchronize(stage.stream(rank));
      });
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
    const Status status = stage.judge();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

// Requires  three ranks, and a short deadline.
inline void expect_missing_rank_is_named(Stage& stage) {
  ASSERT_TRUE(stage.set(sum_of(300)).ok());
  for (const Rank rank : {0, 2}) ASSERT_TRUE(stage.launch(rank).ok());
  for (const Rank rank : {0, 2}) {
    const Status status = stage.world().rank(rank).synchronize(stage.stream(rank));
    EXPECT_EQ(status.code(), StatusCode::timeout) << status.to_string();
    EXPECT_EQ(status.culprit(), 1) << status.to_string();
    EXPECT_THAT(status.message(), ::testing::HasSubstr("rank 1 is missing"));
  }
}

}  // namespace tutti::runtime::gpu
