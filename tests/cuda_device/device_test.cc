// A device by the CUDA driver, on the stand-in for CUDA: memory, peers, streams, events, graphs.
// What its kernels do: world_test.cc.
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "cuda_device/cuda_devices.hpp"
#include "transport/cuda/launch.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using tutti::testing::context_of;
using tutti::testing::counts;
using tutti::testing::Gate;

namespace cuda = transport::cuda;

using Bytes = std::vector<std::byte>;

Bytes some_bytes(std::size_t count, std::uint64_t seed = 1) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(mixed(seed + i / 8) >> i % 8 * 8);
  return bytes;
}

class CudaDeviceTest : public OnCudaDevices {
 protected:
  Bytes read(const std::byte* from, std::size_t bytes, int ordinal = 0) {
    Bytes host(bytes);
    const Status status = device(ordinal).copy_out(host.data(), from, bytes);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return host;
  }
  static cuda::Stream raw(StreamHandle stream) { return static_cast<cuda::Stream>(stream); }
  void hold(Gate& gate, StreamHandle stream) { gate.hold(driver(), raw(stream)); }
  static cuda::LaunchFunctions launch_functions() { return *cuda::find_launch_functions(); }
};

TEST_F(CudaDeviceTest, KnowsWhichOneItIs) {
  EXPECT_EQ(device(2).id(), 2);
  EXPECT_THAT(device(2).name(), AllOf(HasSubstr("CUDA stand-in 2"), HasSubstr("(device 2)")));
  EXPECT_EQ(device(0).id(), 0);
}

TEST_F(CudaDeviceTest, GivesEverythingBack) {
  const auto before = counts();
  {
    auto made = make_cuda_device(1, kSomeImage);
    ASSERT_TRUE(made.ok());
    Device& own = **made;
    ASSERT_TRUE(own.allocate_shared(100).ok());
    std::byte* const memory = *own.allocate(100);
    const StreamHandle stream = *own.make_stream();
    const EventHandle event = *own.make_event();
    const auto during = counts();
    EXPECT_EQ(during.device_memory, before.device_memory + 1);
    EXPECT_GE(during.host_memory, before.host_memory + 2);
    EXPECT_EQ(during.events, before.events + 1);
    EXPECT_EQ(during.modules, before.modules + 1);
    own.destroy_event(event);
    own.destroy_stream(stream);
    own.deallocate(memory);
  }
  auto after = counts();
  after.streams -= before.streams == 0 ? 1 : 0;  // the device's default one, which stays
  EXPECT_EQ(after.device_memory, before.device_memory);
  EXPECT_EQ(after.host_memory, before.host_memory);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.modules, before.modules);
  EXPECT_LE(after.streams, before.streams + 1);
}

// It does not matter which context the caller's thread has, and it keeps it.
TEST_F(CudaDeviceTest, LeavesTheCallersContextAlone) {
  device(1);
  EXPECT_EQ(*driver().current(), nullptr);
  const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 3));
  std::byte* const memory = *device(1).allocate(64);
  EXPECT_EQ(driver().place_of(memory)->ordinal, 1);
  EXPECT_TRUE(device(1).zero(memory, 64).ok());
  EXPECT_TRUE(device(1).finish().ok());
  EXPECT_GT(*device(1).blocks_at_once(64), 0);
  device(1).deallocate(memory);
  EXPECT_EQ(*driver().current_device(), 3);
}

// ---- Memory ----

TEST_F(CudaDeviceTest, CopiesAnyNumberOfBytes) {
  constexpr std::size_t kMost = (3 << 20) + 17;  // its staging memory has one MiB
  std::byte* const memory = *device().allocate(kMost + 2);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{4097},
                                  std::size_t{1} << 20, (std::size_t{1} << 20) + 1, kMost}) {
    const Bytes whole = some_bytes(kMost + 2, bytes);
    ASSERT_TRUE(device().copy_in(memory, whole.data(), whole.size()).ok());
    const Bytes part = some_bytes(bytes, bytes + 1000000);
    ASSERT_TRUE(device().copy_in(memory + 1, part.data(), part.size()).ok());
    Bytes wanted = whole;
    std::copy(part.begin(), part.end(), wanted.begin() + 1);
    EXPECT_TRUE(read(memory, wanted.size()) == wanted) << bytes;
    EXPECT_TRUE(read(memory + 1, bytes) == part) << bytes;
  }
  device().deallocate(memory);
}

TEST_F(CudaDeviceTest, ZeroesWhatItIsToldTo) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, (std::size_t{2} << 20) + 5}) {
    std::byte* const memory = *device().allocate(bytes + 2);
    Bytes wanted = some_bytes(bytes + 2);
    ASSERT_TRUE(device().copy_in(memory, wanted.data(), wanted.size()).ok());
    ASSERT_TRUE(device().zero(memory + 1, bytes).ok());
    std::fill(wanted.begin() + 1, wanted.end() - 1, std::byte{0});
    EXPECT_TRUE(read(memory, wanted.size()) == wanted) << bytes;
    device().deallocate(memory);
  }
}

TEST_F(CudaDeviceTest, AllocatesNothingToo) {
  const auto memory = device().allocate(0);
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(*memory, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*memory) % 256, 0U);
  device().deallocate(*memory);
}

TEST_F(CudaDeviceTest, SharesMemoryWithTheHost) {
  std::byte* const first = *device().allocate_shared(5000);
  std::byte* const second = *device().allocate_shared(64);
  EXPECT_THAT(Bytes(first, first + 5000), Each(std::byte{0}));
  EXPECT_THAT(Bytes(second, second + 64), Each(std::byte{0}));
  const Bytes bytes = some_bytes(5000);
  std::copy(bytes.begin(), bytes.end(), first);
  EXPECT_EQ(read(first, 5000), bytes);
  EXPECT_FALSE(driver().place_of(first)->device);
  EXPECT_EQ(driver().place_of(first)->ordinal, 0) << "it is not page-locked";
  device().deallocate_shared(second);
  EXPECT_EQ(driver().place_of(second)->ordinal, -1) << "it is page-locked still";
  EXPECT_EQ(read(first, 5000), bytes);
}

// ---- Peers ----

TEST_F(CudaDeviceTest, ReachesPeers) {
  const auto enable_again = [&](int from, int to) {
    const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), from));
    return launch_functions().cuCtxEnablePeerAccess(context_of(driver(), to), 0);
  };
  EXPECT_TRUE(device(2).reach(device(3)).ok());
  EXPECT_EQ(enable_again(2, 3), cuda::kPeerAccessAlreadyEnabled);
  EXPECT_TRUE(device(2).reach(device(3)).ok()) << "a second time";
  EXPECT_TRUE(device(2).reach(device(2)).ok()) << "itself";
  fail_next("cuCtxEnablePeerAccess", 719);
  EXPECT_THAT(device(3).reach(device(2)).message(),
              HasSubstr("cuCtxEnablePeerAccess: CUDA_ERROR_LAUNCH_FAILED"));
}

TEST_F(CudaDeviceTest, SaysWhomItDoesNotReach) {
  HostDevice other({7});
  const Status strange = device(0).reach(other);
  EXPECT_EQ(strange.code(), StatusCode::unsupported);
  EXPECT_THAT(strange.message(), AllOf(HasSubstr("(device 0) cannot load and store the memory of"),
                                       HasSubstr("threads of a processor (device 7)")));
  device(1);
  setenv("CUDA_STAND_IN_NO_PEERS", "1", 1);
  const Status alone = device(0).reach(device(1));
  const auto world = GpuWorld::make(std::vector<Device*>{&device(0), &device(1)}, small_options());
  unsetenv("CUDA_STAND_IN_NO_PEERS");
  EXPECT_EQ(alone.code(), StatusCode::unsupported);
  EXPECT_THAT(alone.message(), HasSubstr("cannot load and store the memory of CUDA stand-in 1"));
  EXPECT_EQ(world.status().code(), StatusCode::unsupported);
}

TEST_F(CudaDeviceTest, KnowsWhatPeersReach) {
  std::byte* const memory = *device().allocate(1000);
  EXPECT_TRUE(device().is_reachable(memory, 1));
  EXPECT_TRUE(device().is_reachable(memory + 999, 1));
  EXPECT_FALSE(device(1).is_reachable(memory, 1)) << "another device's";
  EXPECT_FALSE(device().is_reachable(*device().allocate_shared(8), 8)) << "the host's, page-locked";
  const int on_the_stack = 0;
  EXPECT_FALSE(device().is_reachable(&on_the_stack, 1));
  EXPECT_FALSE(device().is_reachable(nullptr, 1));
  device().deallocate(memory);
  EXPECT_FALSE(device().is_reachable(memory, 1)) << "it is gone";
}

TEST_F(CudaDeviceTest, PeersDoNotReachPools) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  using Allocate = cuda::Code (*)(cuda::DevicePointer*, std::size_t, cuda::Stream);
  const auto allocate = reinterpret_cast<Allocate>(dlsym(library, "cuMemAllocAsync"));
  ASSERT_NE(allocate, nullptr);
  cuda::DevicePointer memory = 0;
  {
    const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
    ASSERT_EQ(allocate(&memory, 100, nullptr), cuda::kSuccess);
  }
  auto* const bytes = reinterpret_cast<std::byte*>(memory);
  EXPECT_FALSE(device().is_reachable(bytes, 1));
  device().deallocate(bytes);
}

// ---- Kernels ----

TEST_F(CudaDeviceTest, CountsTheBlocksThatFit) {
  EXPECT_EQ(*device().blocks_at_once(512), 32);
  EXPECT_EQ(*device().blocks_at_once(256), 64);
  EXPECT_EQ(*device().blocks_at_once(1), 128);
}

TEST_F(CudaDeviceTest, KeepsAQueueForItself) {
  constexpr const char* kName = "CUDA_DEVICE_MAX_CONNECTIONS";
  const auto streams_with = [&](const char* connections) {
    setenv(kName, connections, 1);
    const int streams = device().streams_at_once();
    unsetenv(kName);
    return streams;
  };
  EXPECT_EQ(device().streams_at_once(), 7);
  EXPECT_EQ(streams_with("32"), 31);
  EXPECT_EQ(streams_with("1000"), 31);
  EXPECT_EQ(streams_with("2"), 1);
  EXPECT_EQ(streams_with("1"), 1);
  EXPECT_EQ(streams_with("many"), 7);
}

// ---- Streams and events ----

TEST_F(CudaDeviceTest, StreamsDoOneThingAfterTheOther) {
  const Bytes first = some_bytes(100, 1);
  const Bytes second = some_bytes(100, 2);
  std::byte* const from = *device().allocate(100);
  std::byte* const to = *device().allocate(100);
  const StreamHandle stream = *device().make_stream();
  ASSERT_TRUE(device().copy_in(from, first.data(), 100).ok());
  EXPECT_TRUE(*device().reached(stream));
  Gate gate;
  hold(gate, stream);
  ASSERT_TRUE(device().copy(to, from, 100, stream).ok());
  EXPECT_FALSE(*device().reached(stream));
  ASSERT_TRUE(device().copy_in(from, second.data(), 100).ok()) << "which waits for no stream";
  gate.open();
  EXPECT_TRUE(device().synchronize(stream).ok());
  EXPECT_TRUE(*device().reached(stream));
  EXPECT_EQ(read(to, 100), second);
  ASSERT_TRUE(device().copy_in(from, first.data(), 100).ok());
  ASSERT_TRUE(device().copy(to, from, 99, nullptr).ok());
  EXPECT_TRUE(device().synchronize(nullptr).ok());
  EXPECT_EQ(read(to, 99), Bytes(first.begin(), first.end() - 1));
  EXPECT_EQ(read(to + 99, 1), Bytes(second.end() - 1, second.end()));
  device().deallocate(from);
  device().deallocate(to);
  device().destroy_stream(stream);
}

TEST_F(CudaDeviceTest, FinishWaitsForAllStreams) {
  const StreamHandle stream = *device().make_stream();
  Gate gate;
  hold(gate, stream);
  std::atomic<bool> opened{false};
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    opened = true;
    gate.open();
  });
  EXPECT_TRUE(device().finish().ok());
  EXPECT_TRUE(opened.load());
  opener.join();
  EXPECT_TRUE(*device().reached(stream));
  device().destroy_stream(stream);
}

TEST_F(CudaDeviceTest, EventsOrderStreams) {
  const StreamHandle held = *device().make_stream();
  const StreamHandle other = *device().make_stream();
  const EventHandle event = *device().make_event();
  EXPECT_TRUE(*device().reached_event(event)) << "never recorded";
  Gate gate;
  hold(gate, held);
  ASSERT_TRUE(device().record(event, held).ok());
  ASSERT_TRUE(device().wait_event(other, event).ok());
  EXPECT_FALSE(*device().reached_event(event));
  EXPECT_FALSE(*device().reached(other));
  gate.open();
  EXPECT_TRUE(device().synchronize(other).ok());
  EXPECT_TRUE(*device().reached_event(event));
  device().destroy_event(event);
  device().destroy_stream(held);
  device().destroy_stream(other);
}

TEST_F(CudaDeviceTest, MeasuresMicroseconds) {
  static constexpr std::chrono::microseconds kNap{20000};
  const StreamHandle stream = *device().make_stream();
  const EventHandle begin = *device().make_event();
  const EventHandle end = *device().make_event();
  EXPECT_FALSE(device().elapsed_us(begin, end).ok()) << "never recorded";
  ASSERT_TRUE(device().record(begin, stream).ok());
  const auto nap = [](void*) { std::this_thread::sleep_for(kNap); };
  ASSERT_TRUE(driver().call_host(raw(stream), nap, nullptr).ok());
  ASSERT_TRUE(device().record(end, stream).ok());
  ASSERT_TRUE(device().synchronize(stream).ok());
  const auto elapsed = device().elapsed_us(begin, end);
  ASSERT_TRUE(elapsed.ok()) << elapsed.status().to_string();
  EXPECT_GE(*elapsed, 0.999 * static_cast<double>(kNap.count()));
  EXPECT_LE(*device().elapsed_us(end, begin), 0) << "backwards";
  device().destroy_event(begin);
  device().destroy_event(end);
  device().destroy_stream(stream);
}

// ---- Captured graphs ----

TEST_F(CudaDeviceTest, ReplaysWhatWasCaptured) {
  std::byte* const from = *device().allocate(64);
  std::byte* const to = *device().allocate(64);
  ASSERT_TRUE(device().zero(to, 64).ok());
  const StreamHandle stream = *device().make_stream();
  const auto before = counts();
  EXPECT_EQ(*device().capture_of(stream), 0U);
  EXPECT_EQ(*device().capture_of(nullptr), 0U);
  ASSERT_TRUE(device().begin_capture(stream).ok());
  EXPECT_NE(*device().capture_of(stream), 0U);
  ASSERT_TRUE(device().copy(to, from, 64, stream).ok());
  const auto graph = device().end_capture(stream);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(*device().capture_of(stream), 0U);
  EXPECT_EQ(counts().graphs, before.graphs + 1) << "an instance, and not what it was made of";
  EXPECT_THAT(read(to, 64), Each(std::byte{0})) << "nothing has happened yet";
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Bytes bytes = some_bytes(64, seed);
    ASSERT_TRUE(device().copy_in(from, bytes.data(), 64).ok());
    ASSERT_TRUE(device().replay(*graph, stream).ok());
    ASSERT_TRUE(device().synchronize(stream).ok());
    EXPECT_EQ(read(to, 64), bytes);
  }
  device().destroy_graph(*graph);
  EXPECT_EQ(counts().graphs, before.graphs);
  device().destroy_stream(stream);
  device().deallocate(from);
  device().deallocate(to);
}

TEST_F(CudaDeviceTest, CapturesWithoutHoldingUpOtherThreads) {
  const StreamHandle stream = *device().make_stream();
  ASSERT_TRUE(device().begin_capture(stream).ok());
  std::thread other([&] {
    const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 0));
    const auto memory = driver().allocate(100);
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    EXPECT_TRUE(driver().deallocate(*memory).ok());
  });
  other.join();
  const auto graph = device().end_capture(stream);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  device().destroy_graph(*graph);
  device().destroy_stream(stream);
}

TEST_F(CudaDeviceTest, AGraphThatCannotBeMadeLeavesNothing) {
  const StreamHandle stream = *device().make_stream();
  const auto before = counts();
  EXPECT_FALSE(device().end_capture(stream).ok()) << "it does not capture";
  for (const char* const function :
       {"cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphUpload"}) {
    ASSERT_TRUE(device().begin_capture(stream).ok());
    fail_next(function, 719);
    const auto graph = device().end_capture(stream);
    ASSERT_FALSE(graph.ok()) << function;
    EXPECT_THAT(graph.status().message(), HasSubstr(": CUDA_ERROR_LAUNCH_FAILED"));
    if (*device().capture_of(stream) != 0) device().destroy_graph(*device().end_capture(stream));
    EXPECT_EQ(counts(), before) << function;
  }
  device().destroy_stream(stream);
}

// A program's first call may be in a capture, which must not notice what is made for it; a capture
// of the strictest kind, by the same thread.
TEST_F(CudaDeviceTest, DisturbsNoCapture) {
  device(0);
  const StreamHandle stream = *device(0).make_stream();
  const tutti::testing::Graph graph(raw(stream), [&] {
    Device& other = device(1);  // made here
    std::byte* const memory = *other.allocate(100);
    const Bytes bytes = some_bytes(100);
    EXPECT_TRUE(other.copy_in(memory, bytes.data(), 100).ok());
    EXPECT_TRUE(other.zero(memory, 50).ok());
    EXPECT_EQ(read(memory + 50, 50, 1), Bytes(bytes.begin() + 50, bytes.end()));
    EXPECT_TRUE(other.allocate_shared(8).ok());
    EXPECT_TRUE(other.reach(device(0)).ok());
    EXPECT_TRUE(other.is_reachable(memory, 1));
    const EventHandle event = *other.make_event();
    EXPECT_TRUE(other.reached_event(event).ok());
    other.destroy_event(event);
    EXPECT_TRUE(other.finish().ok());
    other.deallocate(memory);
    EXPECT_TRUE(make_cuda_device(2, kSomeImage).ok());  // and gone again
    EXPECT_NE(*device(0).capture_of(stream), 0U);
  });
  EXPECT_EQ(graph.code(), cuda::kSuccess);
  device(0).destroy_stream(stream);
}

}  // namespace
}  // namespace tutti::runtime::gpu
