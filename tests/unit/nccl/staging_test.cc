// Which parts of device memory are copied for the calls of a launch, and where to.
#include "nccl/staging.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

namespace tutti::nccl {
namespace {

// Addresses that nobody looks behind.
const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(Staging, OfNothingIsNothing) {
  const StagingPlan plan = plan_staging({}, {});
  EXPECT_EQ(plan.bytes, 0U);
  EXPECT_TRUE(plan.inputs.empty() && plan.outputs.empty() && plan.blocks.empty());
  EXPECT_EQ(staged_place(plan, at(0x1000), nullptr), nullptr);
}

TEST(Staging, SeparateBuffersDoNotTouch) {
  const std::vector<DeviceUse> inputs{{at(0x10004), 100}};
  const std::vector<DeviceUse> outputs{{at(0x20000), 7}};
  const StagingPlan plan = plan_staging(inputs, outputs);
  ASSERT_EQ(plan.blocks.size(), 2U);
  std::byte host[2048];
  EXPECT_EQ(staged_place(plan, at(0x10004), host), host + plan.inputs[0].offset);
  EXPECT_EQ(staged_place(plan, at(0x20000), host), host + plan.outputs[0].offset);
  EXPECT_EQ(plan.inputs[0].offset % 256, 4U) << "as far from alignment as on the device";
  EXPECT_GE(plan.outputs[0].offset, plan.inputs[0].offset + 100);
  EXPECT_GE(plan.bytes, plan.outputs[0].offset + 7);
  EXPECT_LE(plan.bytes, 1024U);
}

TEST(Staging, NeighboursStayApart) {
  const std::vector<DeviceUse> inputs{{at(0x10000), 0x100}, {at(0x10100), 0x100}};
  EXPECT_EQ(plan_staging(inputs, {}).blocks.size(), 2U);
}

TEST(Staging, InPlaceStaysInPlace) {
  const std::vector<DeviceUse> inputs{{at(0x10040), 0x20}};
  const std::vector<DeviceUse> outputs{{at(0x10000), 0x100}};
  const StagingPlan plan = plan_staging(inputs, outputs);
  ASSERT_EQ(plan.blocks.size(), 1U);
  std::byte host[1024];
  EXPECT_EQ(staged_place(plan, at(0x10040), host) - staged_place(plan, at(0x10000), host), 0x40);
  EXPECT_EQ(plan.inputs[0].bytes(), 0x20U) << "no more is read than the call reads";
  EXPECT_EQ(plan.outputs[0].bytes(), 0x100U);
}

TEST(Staging, WhatManyCallsReadIsCopiedOnce) {
  const std::vector<DeviceUse> inputs{{at(0x10000), 64}, {at(0x10000), 64}, {at(0x10020), 64}};
  const StagingPlan plan = plan_staging(inputs, {});
  ASSERT_EQ(plan.inputs.size(), 1U);
  EXPECT_EQ(plan.inputs[0].bytes(), 96U);
}

// Copies in, moves bytes as the calls of a group would, copies out: as if it were done in place.
TEST(Staging, IsAsGoodAsTheMemoryItself) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t limit) { return std::size_t{random()} % limit; };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::byte> direct(2000);
    for (std::byte& byte : direct) byte = std::byte(below(256));
    std::vector<std::byte> device = direct;
    std::vector<DeviceUse> inputs;
    std::vector<DeviceUse> outputs;
    for (std::size_t call = 1 + below(4); call > 0; --call) {
      const std::size_t bytes = 1 + below(500);
      inputs.push_back({device.data() + below(1500), bytes});
      outputs.push_back({device.data() + below(1500), bytes});
    }
    const StagingPlan plan = plan_staging(inputs, outputs);
    std::vector<std::byte> host(plan.bytes);
    for (const StagedRange& range : plan.inputs)
      std::memcpy(host.data() + range.offset, range.device(), range.bytes());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto* const in = static_cast<const std::byte*>(inputs[i].memory);
      const auto* const out = static_cast<const std::byte*>(outputs[i].memory);
      std::memmove(direct.data() + (out - device.data()), direct.data() + (in - device.data()),
                   inputs[i].bytes);
      std::memmove(staged_place(plan, out, host.data()), staged_place(plan, in, host.data()),
                   inputs[i].bytes);
    }
    for (const StagedRange& range : plan.outputs)
      std::memcpy(range.device(), host.data() + range.offset, range.bytes());
    ASSERT_EQ(device, direct) << "trial " << trial;
  }
}

}  // namespace
}  // namespace tutti::nccl
