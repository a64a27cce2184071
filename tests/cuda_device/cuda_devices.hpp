// cuda_devices.hpp: devices by the CUDA driver for tests, on the stand-in for CUDA.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "gpu_world/worlds.hpp"
#include "nccl_stream/device.hpp"
#include "runtime/gpu/host/cuda_device.hpp"

namespace tutti::runtime::gpu {

// What the stand-in takes for an image.
inline constexpr std::array<std::byte, 4> kSomeImage{std::byte{1}, std::byte{2}, std::byte{3}};

class OnCudaDevices : public tutti::testing::OnStandIn {
 protected:
  // Made at its first use.
  Device& device(int ordinal = 0) {
    std::unique_ptr<Device>& device = devices_[ordinal];
    if (device == nullptr) {
      auto made = make_cuda_device(ordinal, kSomeImage);
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      device = *std::move(made);
    }
    return *device;
  }

  // A rank on each of them.
  std::unique_ptr<Stage> stage_on(const std::vector<int>& ordinals,
                                  const GpuOptions& options = small_options()) {
    std::vector<Device*> seats;
    for (const int ordinal : ordinals) seats.push_back(&device(ordinal));
    auto stage = Stage::make(seats, options);
    EXPECT_TRUE(stage.ok()) << stage.status().to_string();
    return stage.ok() ? *std::move(stage) : nullptr;
  }

  static void fail_next(const char* function, int code, int after = 0) {
    tutti::testing::stand_in().fail(function, code, after);
  }

 private:
  std::map<int, std::unique_ptr<Device>> devices_;
};

}  // namespace tutti::runtime::gpu
