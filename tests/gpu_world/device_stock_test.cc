// What worlds of one process take of their devices, and what is left for others.
#include "runtime/gpu/host/device_stock.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "gpu_world/host_device.hpp"
#include "gpu_world/worlds.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

GpuOptions options_with(int channels) {
  GpuOptions options = small_options();
  options.channels = channels;
  return options;
}

// Devices that hold so many blocks, and run the kernels of so many streams.
DeviceStock::Make devices_of(int blocks, int streams) {
  return [=](int ordinal) -> Result<std::unique_ptr<Device>> {
    return std::unique_ptr<Device>(new HostDevice({ordinal, blocks, streams, true}));
  };
}

TEST(DeviceStock, AWorldTakesHalfOfWhatIsLeft) {
  DeviceStock stock(devices_of(24, 32));
  const std::vector<int> pair{0, 0};
  const auto first = stock.make_world(pair, options_with(0));
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ((*first)->world().shape().channels, 6U);
  const auto second = stock.make_world(pair, options_with(0));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->world().shape().channels, 3U);
  // Of 6 that are left, and of as many as there are on another device.
  const std::vector<int> apart{0, 1};
  const auto third = stock.make_world(apart, options_with(0));
  ASSERT_TRUE(third.ok());
  EXPECT_EQ((*third)->world().shape().channels, 3U);
}

TEST(DeviceStock, ThereIsNoWorldWhoseBlocksDoNotFit) {
  DeviceStock stock(devices_of(4, 32));
  const std::vector<int> three{0, 0, 0};
  auto first = stock.make_world(three, options_with(0));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->world().shape().channels, 1U);
  const std::vector<int> two{0, 0};
  const auto second = stock.make_world(two, options_with(0));
  EXPECT_EQ(second.status().code(), StatusCode::unsupported);
  EXPECT_THAT(second.status().message(), HasSubstr("have left 1 blocks"));
  first->reset();
  EXPECT_TRUE(stock.make_world(two, options_with(2)).ok());
}

TEST(DeviceStock, ThereIsNoWorldWhoseStreamsWouldWait) {
  DeviceStock stock(devices_of(64, 3));
  const std::vector<int> pair{0, 0};
  auto first = stock.make_world(pair, options_with(1));
  ASSERT_TRUE(first.ok());
  const auto second = stock.make_world(pair, options_with(1));
  EXPECT_EQ(second.status().code(), StatusCode::unsupported);
  EXPECT_THAT(second.status().message(), HasSubstr("left 1 streams"));
  EXPECT_THAT(second.status().message(), HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS"));
  first->reset();
  EXPECT_TRUE(stock.make_world(pair, options_with(1)).ok());
}

TEST(DeviceStock, WhatFailedHasTakenNothing) {
  DeviceStock stock(devices_of(4, 4));
  GpuOptions wrong = options_with(0);
  wrong.slots = 1;
  const std::vector<int> four{0, 0, 0, 0};
  EXPECT_EQ(stock.make_world(four, wrong).status().code(), StatusCode::invalid_argument);
  EXPECT_TRUE(stock.make_world(four, options_with(0)).ok());
}

// What an aborted world had, others get at once; its memory, when no stream needs it any more.
TEST(DeviceStock, TakesBackWhatAnAbortedWorldHad) {
  HostDevice* device = nullptr;
  DeviceStock stock([&](int) -> Result<std::unique_ptr<Device>> {
    auto made = std::make_unique<HostDevice>(HostDeviceOptions{0, 4, 2, true});
    device = made.get();
    return std::unique_ptr<Device>(std::move(made));
  });
  const std::vector<int> pair{0, 0};
  auto aborted = stock.make_world(pair, options_with(2));
  ASSERT_TRUE(aborted.ok()) << aborted.status().to_string();
  const int allocations = device->allocations();
  const StreamHandle stream = *device->make_stream();
  std::vector<std::byte> memory(16);
  GpuCall call;
  call.input = call.output = memory.data();
  call.count = 4;
  std::promise<void> opened;
  device->hold(stream, opened.get_future());  // which the rank's kernel cannot leave before
  ASSERT_TRUE((*aborted)->world().rank(0).call(call, stream).ok());
  ASSERT_TRUE((*aborted)->world().abort().ok());
  stock.retire(*std::move(aborted));
  auto second = stock.make_world(pair, options_with(2));
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_GE(device->allocations(), 2 * allocations);
  opened.set_value();
  EXPECT_TRUE(device->synchronize(stream).ok());
  second->reset();
  second = stock.make_world(pair, options_with(2));
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(device->allocations(), allocations);
}

TEST(DeviceStock, TellsWhyThereIsNoDevice) {
  DeviceStock stock([](int ordinal) -> Result<std::unique_ptr<Device>> {
    return Status(StatusCode::unsupported, fmt::format("no device {}", ordinal));
  });
  const std::vector<int> one{3};
  EXPECT_THAT(stock.make_world(one, options_with(0)).status().message(), HasSubstr("no device 3"));
}

}  // namespace
}  // namespace tutti::runtime::gpu
