// The part of the stand-in for CUDA that runs kernels: that it is as strict as tests count on.
#include <gmock/gmock.h>

#include <thread>

#include "cuda_device/cuda_devices.hpp"
#include "transport/cuda/launch.hpp"

namespace tutti::runtime::gpu {
namespace {

namespace cuda = transport::cuda;
using tutti::testing::context_of;

constexpr cuda::Code kInvalidHandle = 400;
constexpr cuda::Code kNoContext = 201;

class CudaStandInKernels : public OnCudaDevices {
 protected:
  void SetUp() override {
    OnCudaDevices::SetUp();
    if (IsSkipped()) return;
    scope_.emplace(*cuda::ContextScope::enter(driver(), context_of(driver(), 0)));
    f_ = *cuda::find_launch_functions();
  }

  cuda::Code launch(cuda::Function function, void** arguments, cuda::Stream stream = nullptr) {
    return f_.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
  }

  std::optional<cuda::ContextScope> scope_;
  cuda::LaunchFunctions f_{};
};

using CudaStandInKernelsDeathTest = CudaStandInKernels;

// Kernels need it at these addresses, and only while they run.
TEST_F(CudaStandInKernelsDeathTest, DeviceMemoryIsClosedAgainBehindKernels) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stage = stage_on({0, 1});
  ASSERT_NE(stage, nullptr);
  const volatile std::byte* const memory = *device().allocate(10);
  ASSERT_TRUE(stage->run(sum_of(100)).ok());
  EXPECT_DEATH({ static_cast<void>(*memory); }, "");
}

TEST_F(CudaStandInKernels, KernelsReachWhatIsAllocatedWhileOthersRun) {
  const auto waiting = stage_on({0, 0});
  const auto other = stage_on({2, 2});
  ASSERT_TRUE(waiting != nullptr && other != nullptr);
  ASSERT_TRUE(waiting->set(sum_of(100)).ok());
  ASSERT_TRUE(waiting->launch(0).ok());
  for (std::size_t count : {100U, 3000U, 100000U}) {  // each with more memory than before
    const Status status = other->run(sum_of(count));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_FALSE(*device().reached(waiting->stream(0)));
  ASSERT_TRUE(waiting->launch(1).ok());
  EXPECT_TRUE(waiting->synchronize().ok());
  EXPECT_TRUE(waiting->judge().ok());
}

TEST_F(CudaStandInKernels, ModulesHaveTuttisKernelsUntilTheyAreUnloaded) {
  cuda::Module module = nullptr;
  EXPECT_NE(f_.cuModuleLoadData(&module, nullptr), cuda::kSuccess);
  ASSERT_EQ(f_.cuModuleLoadData(&module, kSomeImage.data()), cuda::kSuccess);
  cuda::Function function = nullptr;
  EXPECT_EQ(f_.cuModuleGetFunction(&function, module, "tutti_gpu_int128"), 500);
  for (const DataType type : kAllDataTypes)
    EXPECT_EQ(f_.cuModuleGetFunction(&function, module, kernel_name(type)), cuda::kSuccess);
  ASSERT_EQ(f_.cuModuleGetFunction(&function, module, byte_kernel_name()), cuda::kSuccess);
  int value = 0;
  EXPECT_EQ(f_.cuFuncGetAttribute(&value, cuda::kFunctionRegisters, function), cuda::kSuccess);
  EXPECT_GT(value, 0);
  EXPECT_EQ(f_.cuFuncLoad(function), cuda::kSuccess);
  EXPECT_EQ(f_.cuModuleUnload(module), cuda::kSuccess);
  EXPECT_EQ(f_.cuModuleUnload(module), kInvalidHandle);
  EXPECT_EQ(f_.cuFuncLoad(function), kInvalidHandle);
  EXPECT_EQ(f_.cuFuncGetAttribute(&value, cuda::kFunctionRegisters, function), kInvalidHandle);
  EXPECT_EQ(f_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 32, 0),
            kInvalidHandle);
  void* arguments[3] = {};
  EXPECT_EQ(launch(function, arguments), kInvalidHandle);
}

TEST_F(CudaStandInKernels, LaunchesAreLookedAt) {
  cuda::Module module = nullptr;
  ASSERT_EQ(f_.cuModuleLoadData(&module, kSomeImage.data()), cuda::kSuccess);
  cuda::Function function = nullptr;
  ASSERT_EQ(f_.cuModuleGetFunction(&function, module, byte_kernel_name()), cuda::kSuccess);
  EXPECT_EQ(launch(function, nullptr), cuda::kInvalidValue) << "no arguments";
  void* arguments[3] = {};
  EXPECT_EQ(f_.cuLaunchKernel(function, 1, 2, 1, 32, 1, 1, 0, nullptr, arguments, nullptr),
            cuda::kInvalidValue)
      << "two dimensions";
  const auto elsewhere = [&] {
    const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 1));
    return *cuda::OwnStream::make(driver());
  }();
  EXPECT_EQ(launch(function, arguments, elsewhere.get()), kInvalidHandle);
  scope_.reset();
  EXPECT_EQ(launch(function, arguments), kNoContext);
  scope_.emplace(*cuda::ContextScope::enter(driver(), context_of(driver(), 0)));
  EXPECT_EQ(f_.cuModuleUnload(module), cuda::kSuccess);
}

TEST_F(CudaStandInKernels, DevicesArePeersButNotOfThemselves) {
  int can = 1;
  EXPECT_EQ(f_.cuDeviceCanAccessPeer(&can, 1, 1), cuda::kSuccess);
  EXPECT_EQ(can, 0);
  EXPECT_EQ(f_.cuDeviceCanAccessPeer(&can, 0, 1), cuda::kSuccess);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(f_.cuDeviceCanAccessPeer(&can, 0, 4), 101);
  EXPECT_EQ(f_.cuCtxEnablePeerAccess(context_of(driver(), 0), 0), kNoContext) << "itself";
  f_.cuCtxEnablePeerAccess(context_of(driver(), 1), 0);  // another test may have done it
  EXPECT_EQ(f_.cuCtxEnablePeerAccess(context_of(driver(), 1), 0), cuda::kPeerAccessAlreadyEnabled);
}

TEST_F(CudaStandInKernels, ADeviceIsNotSynchronizedWhileAStreamOfItIsCaptured) {
  const auto stream = cuda::OwnStream::make(driver());
  const tutti::testing::Graph graph(stream->get(), [&] {
    const cuda::RelaxedCapture while_it_lives(driver());
    {
      const auto scope = cuda::ContextScope::enter(driver(), context_of(driver(), 1));
      EXPECT_EQ(f_.cuCtxSynchronize(), cuda::kSuccess) << "another device";
    }
    EXPECT_EQ(f_.cuCtxSynchronize(), cuda::kCaptureUnsupported);
  });
  EXPECT_EQ(graph.code(), cuda::kCaptureInvalidated);
}

TEST_F(CudaStandInKernels, CapturesEndInTheThreadTheyBeganIn) {
  const auto stream = cuda::OwnStream::make(driver());
  constexpr cuda::Code kWrongThread = 908;
  for (const int mode : {cuda::kCaptureModeThreadLocal, cuda::kCaptureModeRelaxed}) {
    ASSERT_EQ(f_.cuStreamBeginCapture_v2(stream->get(), mode), cuda::kSuccess);
    const bool strict = mode != cuda::kCaptureModeRelaxed;
    std::thread other([&] {
      cuda::Graph graph = nullptr;
      EXPECT_EQ(f_.cuStreamEndCapture(stream->get(), &graph),
                strict ? kWrongThread : cuda::kSuccess);
      if (!strict) f_.cuGraphDestroy(graph);
    });
    other.join();
    if (!strict) continue;
    cuda::Graph graph = nullptr;
    EXPECT_EQ(f_.cuStreamEndCapture(stream->get(), &graph), cuda::kSuccess);
    f_.cuGraphDestroy(graph);
  }
}

TEST_F(CudaStandInKernels, OnlyEventsWithATimeAreTimed) {
  const auto without = cuda::OwnEvent::make(driver());
  cuda::Event timed = nullptr;
  ASSERT_EQ(driver().functions().cuEventCreate(&timed, 0), cuda::kSuccess);
  for (const cuda::Event event : {timed, without->get()})
    ASSERT_TRUE(driver().record(event, nullptr).ok());
  ASSERT_TRUE(driver().synchronize(cuda::Stream(nullptr)).ok());
  float milliseconds = 0;
  EXPECT_EQ(f_.cuEventElapsedTime(&milliseconds, timed, without->get()), kInvalidHandle);
  driver().functions().cuEventDestroy_v2(timed);
}

}  // namespace
}  // namespace tutti::runtime::gpu
