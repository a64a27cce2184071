// worlds.hpp: small worlds on threads, and small calls for them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
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

}  // namespace tutti::runtime::gpu
