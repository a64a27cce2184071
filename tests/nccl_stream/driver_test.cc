// The driver's functions as Tutti calls them, on the stand-in for CUDA.
#include <gmock/gmock.h>

#include "device.hpp"
#include "nccl/memory_kind.hpp"

namespace tutti::testing {
namespace {

using nccl::memory_kind_of;
using ::testing::HasSubstr;

class CudaDriver : public OnStandIn {};

TEST_F(CudaDriver, KnowsDevices) {
  EXPECT_EQ(*driver().device_count(), 4);
  EXPECT_GE(driver().version(), 11000);
  const cuda::Device device = *driver().device(3);
  EXPECT_THAT(*driver().device_name(device), HasSubstr("stand-in 3"));
  EXPECT_EQ(*driver().device_pci_bus_id(device), "0000:04:00.0");
  EXPECT_FALSE(driver().device(4).ok());
}

TEST_F(CudaDriver, IsNoneWithoutDevices) {
  setenv("CUDA_STAND_IN_DEVICES", "0", 1);
  const cuda::Found found = cuda::find_in("libcuda.so.1");
  unsetenv("CUDA_STAND_IN_DEVICES");
  EXPECT_EQ(found.driver, nullptr);
  EXPECT_THAT(found.reason,
              HasSubstr("no CUDA driver: libcuda.so.1: cuInit: CUDA_ERROR_NO_DEVICE"));
}

TEST_F(CudaDriver, ErrorsHaveTheDriversNames) {
  const Status status = driver().device_name(99).status();
  EXPECT_EQ(status.code(), StatusCode::system_error);
  EXPECT_THAT(status.message(), HasSubstr("cuDeviceGetName: CUDA_ERROR_INVALID_DEVICE"));
  EXPECT_THAT(driver().check(12345, "x").message(), HasSubstr("CUDA error 12345"));
  EXPECT_EQ(driver().check(cuda::kCaptureUnsupported, "x").code(), StatusCode::unsupported);
}

TEST_F(CudaDriver, ContextsEndWithTheirBlock) {
  EXPECT_EQ(*driver().current(), nullptr);
  {
    const auto outer = cuda::ContextScope::enter(driver(), context_of(driver(), 1));
    EXPECT_EQ(*driver().current_device(), 1);
    {
      const auto inner = cuda::ContextScope::enter(driver(), context_of(driver(), 2));
      EXPECT_EQ(*driver().current_device(), 2);
    }
    EXPECT_EQ(*driver().current_device(), 1);
  }
  EXPECT_EQ(*driver().current(), nullptr);
  EXPECT_FALSE(cuda::ContextScope::enter(driver(), nullptr).ok());
}

TEST_F(CudaDriver, KnowsWhereMemoryLies) {
  const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 2));
  const DeviceArray<char> device(driver(), std::vector<char>(5000));
  for (const char* const inside : {device.data(), device.data() + 4999}) {
    const auto kind = memory_kind_of(&driver(), inside);
    ASSERT_TRUE(kind.ok());
    EXPECT_TRUE(kind->device);
    EXPECT_EQ(kind->ordinal, 2);
    EXPECT_EQ(kind->context, context_of(driver(), 2));
  }
  const auto pinned = cuda::PinnedMemory::allocate(driver(), 100);
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(driver().place_of(pinned->data())->ordinal, 2);
  const int on_the_stack = 0;
  for (const void* const host :
       {static_cast<const void*>(pinned->data()), static_cast<const void*>(&on_the_stack),
        static_cast<const void*>(nullptr)})
    EXPECT_FALSE(memory_kind_of(&driver(), host)->device);
  EXPECT_FALSE(memory_kind_of(nullptr, device.data())->device) << "without a driver";
}

TEST_F(CudaDriver, OwnersGiveBack) {
  const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
  const TuttiStandInCounts before = counts();
  std::vector<std::byte> plain(5000);
  {
    auto allocated = cuda::PinnedMemory::allocate(driver(), 1000);
    auto pinned = cuda::PinnedMemory::pin(driver(), plain.data(), plain.size());
    auto stream = cuda::OwnStream::make(driver());
    auto event = cuda::OwnEvent::make(driver());
    ASSERT_TRUE(allocated.ok() && pinned.ok() && stream.ok() && event.ok());
    const TuttiStandInCounts during = counts();
    EXPECT_EQ(during.host_memory, before.host_memory + 1);
    EXPECT_EQ(during.registered_memory, before.registered_memory + 1);
    EXPECT_EQ(during.streams, before.streams + 1);
    EXPECT_EQ(during.events, before.events + 1);
    EXPECT_EQ(pinned->bytes(), plain.size());
    EXPECT_FALSE(cuda::PinnedMemory::pin(driver(), plain.data(), 8).ok()) << "locked already";
    cuda::PinnedMemory moved = *std::move(allocated);
    moved = *std::move(pinned);
    const cuda::OwnStream moved_stream = *std::move(stream);
    const cuda::OwnEvent moved_event = *std::move(event);
    EXPECT_EQ(moved.data(), plain.data());
  }
  EXPECT_EQ(counts(), before);
}

TEST_F(CudaDriver, EnqueuesInOrder) {
  const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
  const auto stream = cuda::OwnStream::make(driver());
  const auto event = cuda::OwnEvent::make(driver());
  const auto cell_memory = cuda::PinnedMemory::allocate(driver(), 4);
  auto* const cell = reinterpret_cast<std::uint32_t*>(cell_memory->data());
  DeviceArray<int> device(driver(), {1, 2, 3});
  std::vector<int> back(3);
  ASSERT_TRUE(driver().wait_value(stream->get(), cell, 7).ok());
  ASSERT_TRUE(driver().copy_to_host(back.data(), device.data(), 12, stream->get()).ok());
  ASSERT_TRUE(driver().write_value(stream->get(), cell, 9).ok());
  ASSERT_TRUE(driver().record(event->get(), stream->get()).ok());
  EXPECT_FALSE(*driver().reached(stream->get()));
  EXPECT_FALSE(*driver().reached(event->get()));
  device.write({4, 5, 6});  // by another stream, which goes on meanwhile
  __atomic_store_n(cell, 7, __ATOMIC_RELEASE);
  ASSERT_TRUE(driver().synchronize(event->get()).ok());
  EXPECT_TRUE(*driver().reached(event->get()));
  EXPECT_TRUE(driver().synchronize(stream->get()).ok());
  EXPECT_EQ(*cell, 9U);
  EXPECT_EQ(back, (std::vector<int>{4, 5, 6}));
  EXPECT_FALSE(
      driver().wait_value(stream->get(), reinterpret_cast<std::uint32_t*>(back.data()), 0).ok())
      << "not page-locked";
}

TEST_F(CudaDriver, SeesCaptures) {
  const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
  const auto stream = cuda::OwnStream::make(driver());
  EXPECT_FALSE(driver().capture_of(stream->get())->active);
  std::uint64_t first = 0;
  const Graph graph(stream->get(), [&] {
    const auto capture = driver().capture_of(stream->get());
    EXPECT_TRUE(capture->active);
    first = capture->id;
  });
  EXPECT_EQ(graph.code(), cuda::kSuccess);
  EXPECT_FALSE(driver().capture_of(stream->get())->active);
  const Graph other(stream->get(),
                    [&] { EXPECT_NE(driver().capture_of(stream->get())->id, first); });
}

TEST_F(CudaDriver, MemoryCanBeMadeDuringCaptures) {
  const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
  const auto stream = cuda::OwnStream::make(driver());
  const Graph relaxed(stream->get(), [&] {
    const cuda::RelaxedCapture while_it_lives(driver());
    EXPECT_TRUE(cuda::PinnedMemory::allocate(driver(), 10).ok());
  });
  EXPECT_EQ(relaxed.code(), cuda::kSuccess);
  const Graph strict(stream->get(), [&] {
    EXPECT_EQ(cuda::PinnedMemory::allocate(driver(), 10).status().code(), StatusCode::unsupported);
    EXPECT_FALSE(driver().capture_of(stream->get()).ok()) << "the capture has failed";
  });
  EXPECT_EQ(strict.code(), cuda::kCaptureInvalidated);
}

}  // namespace
}  // namespace tutti::testing
