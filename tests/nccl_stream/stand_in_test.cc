// The stand-in for CUDA itself: that it is strict where tests count on it.
#include <gtest/gtest.h>

#include "device.hpp"

namespace tutti::testing {
namespace {

class CudaStandIn : public OnStandIn {
 protected:
  void SetUp() override {
    OnStandIn::SetUp();
    if (IsSkipped()) return;
    scope_.emplace(*cuda::ContextScope::enter(driver(), context_of(driver(), 0)));
  }

  std::optional<cuda::ContextScope> scope_;
};

using CudaStandInDeathTest = CudaStandIn;

TEST_F(CudaStandInDeathTest, DeviceMemoryIsNotTheHosts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const DeviceArray<int> array(driver(), {1, 2, 3});
  EXPECT_DEATH({ static_cast<void>(*static_cast<volatile int*>(array.data())); }, "");
  EXPECT_DEATH({ *static_cast<volatile int*>(array.data()) = 1; }, "");
}

TEST_F(CudaStandIn, CopiesEndWithTheMemory) {
  const DeviceArray<int> array(driver(), {1, 2, 3});
  std::vector<int> host(4);
  const auto stream = cuda::OwnStream::make(driver());
  EXPECT_FALSE(driver().copy_to_host(host.data(), array.data(), 16, stream->get()).ok());
  EXPECT_FALSE(driver().copy_to_device(array.data() + 1, host.data(), 12, stream->get()).ok());
  EXPECT_TRUE(driver().copy_to_host(host.data(), array.data() + 1, 8, stream->get()).ok());
  EXPECT_TRUE(driver().synchronize(stream->get()).ok());
  EXPECT_EQ(host, (std::vector<int>{2, 3, 0, 0}));
}

TEST_F(CudaStandIn, AStreamThatWaitsHoldsUpNoOther) {
  const auto held = cuda::OwnStream::make(driver());
  const auto other = cuda::OwnStream::make(driver());
  const auto event = cuda::OwnEvent::make(driver());
  Gate gate;
  gate.hold(driver(), held->get());
  EXPECT_TRUE(driver().record(event->get(), held->get()).ok());
  EXPECT_TRUE(driver().synchronize(other->get()).ok());
  EXPECT_TRUE(driver().wait_event(other->get(), event->get()).ok());
  EXPECT_FALSE(*driver().reached(other->get()));
  gate.open();
  EXPECT_TRUE(driver().synchronize(other->get()).ok());
}

TEST_F(CudaStandIn, HostFunctionsMayNotCallIt) {
  const auto stream = cuda::OwnStream::make(driver());
  std::pair<const cuda::Driver*, Status> found{&driver(), Status()};
  EXPECT_TRUE(driver()
                  .call_host(
                      stream->get(),
                      [](void* argument) {
                        auto& pair =
                            *static_cast<std::pair<const cuda::Driver*, Status>*>(argument);
                        pair.second = pair.first->device_count().status();
                      },
                      &found)
                  .ok());
  EXPECT_TRUE(driver().synchronize(stream->get()).ok());
  EXPECT_NE(found.second.message().find("CUDA_ERROR_NOT_PERMITTED"), std::string::npos);
}

TEST_F(CudaStandIn, CapturesAreClosed) {
  const auto stream = cuda::OwnStream::make(driver());
  const auto other = cuda::OwnStream::make(driver());
  const auto event = cuda::OwnEvent::make(driver());
  EXPECT_TRUE(driver().record(event->get(), other->get()).ok());
  const Graph isolated(
      stream->get(), [&] { EXPECT_FALSE(driver().wait_event(stream->get(), event->get()).ok()); });
  EXPECT_EQ(isolated.code(), cuda::kCaptureInvalidated);
  const Graph unjoined(stream->get(), [&] {
    EXPECT_TRUE(driver().record(event->get(), stream->get()).ok());
    EXPECT_TRUE(driver().wait_event(other->get(), event->get()).ok());
    EXPECT_TRUE(driver()
                    .call_host(
                        other->get(), [](void*) {}, nullptr)
                    .ok());
  });
  EXPECT_EQ(unjoined.code(), cuda::kCaptureUnjoined);
  EXPECT_FALSE(driver().reached(event->get()).ok()) << "it was recorded in a capture";
}

TEST_F(CudaStandIn, FreeingMemoryWaitsForTheDevice) {
  const auto stream = cuda::OwnStream::make(driver());
  auto pinned = cuda::PinnedMemory::allocate(driver(), 8);
  std::atomic<bool> freed{false};
  Gate gate;
  gate.hold(driver(), stream->get());
  std::thread freer([&] {
    const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
    pinned = cuda::PinnedMemory();
    freed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(freed.load());
  gate.open();
  freer.join();
}

}  // namespace
}  // namespace tutti::testing
