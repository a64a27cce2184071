// What a device by the CUDA driver cannot do, or the driver refuses: told by name, and nothing is
// left behind. On the stand-in for CUDA.
#include <gmock/gmock.h>

#include "cuda_device/cuda_devices.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tutti::testing::counts;

constexpr int kLaunchFailed = 719;
constexpr int kNoBinary = 209;

class CudaDeviceFailures : public OnCudaDevices {
 protected:
  // What making device 0 fails with. Nothing may be left of it.
  Status refusal(std::span<const std::byte> image = kSomeImage, int ordinal = 0) {
    device(0);  // so that what stays of every device is there already
    const auto before = counts();
    const auto made = make_cuda_device(ordinal, image);
    if (made.ok()) return Status();
    EXPECT_EQ(counts(), before) << made.status().to_string();
    return made.status();
  }
};

TEST_F(CudaDeviceFailures, ThereIsNoSuchDevice) {
  for (const int ordinal : {4, 1000, -1}) {
    const Status status = refusal(kSomeImage, ordinal);
    EXPECT_EQ(status.code(), StatusCode::unsupported) << status.to_string();
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("no CUDA device " + std::to_string(ordinal)),
                      HasSubstr("the driver shows 4"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  }
}

TEST_F(CudaDeviceFailures, TheBuildHasNoKernels) {
  const Status status = refusal({});
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(), HasSubstr("this build of Tutti has no kernels: there was no nvcc"));
}

TEST_F(CudaDeviceFailures, TheDriverRefusesTheKernels) {
  constexpr std::array kNoImage{std::byte{0}, std::byte{1}};
  Status status = refusal(kNoImage);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(), HasSubstr("cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE"));
  fail_next("cuModuleLoadData", kNoBinary);
  status = refusal();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("CUDA stand-in 0"), HasSubstr("of compute capability 9.0"),
                    HasSubstr("does not take the kernels of this build: cuModuleLoadData: "
                              "CUDA_ERROR_NO_BINARY_FOR_GPU")));
}

TEST_F(CudaDeviceFailures, WhateverFailsInMakingOneIsNamed) {
  device(0);
  for (const char* const function :
       {"cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuStreamCreate",
        "cuMemHostAlloc", "cuFuncLoad"}) {
    fail_next(function, kLaunchFailed);
    const Status status = refusal();
    EXPECT_EQ(status.code(), StatusCode::system_error) << function;
    const std::string name(function);
    EXPECT_THAT(status.message(),
                HasSubstr(name.substr(0, name.find("_v2")) + ": CUDA_ERROR_LAUNCH_FAILED"));
  }
  const std::pair<int, const char*> kernels[] = {{1, "exchange"}, {4, "int32"}};
  for (const auto& [before, name] : kernels) {
    fail_next("cuModuleGetFunction", 500, before);
    EXPECT_THAT(refusal().message(),
                HasSubstr("tutti_gpu_" + std::string(name) + ": CUDA_ERROR_NOT_FOUND"));
  }
  EXPECT_TRUE(refusal().ok()) << "nothing fails any more";
}

TEST_F(CudaDeviceFailures, WhateverTheDriverRefusesIsNamed) {
  Device& it = device();
  std::byte* const memory = *it.allocate(64);
  std::array<std::byte, 64> host{};
  const StreamHandle stream = *it.make_stream();
  const EventHandle event = *it.make_event();
  const EventHandle later = *it.make_event();
  ASSERT_TRUE(it.record(event, stream).ok() && it.record(later, stream).ok());
  ASSERT_TRUE(it.synchronize(stream).ok());
  const auto expect = [](const char* function, const char* shown, const auto& action) {
    tutti::testing::stand_in().fail(function, kLaunchFailed, 0);
    const Status status = action();
    EXPECT_FALSE(status.ok()) << function;
    EXPECT_THAT(status.message(), HasSubstr(std::string(shown) + ": CUDA_ERROR_LAUNCH_FAILED"));
    EXPECT_TRUE(action().ok()) << function << ": " << action().to_string();
  };
  expect("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync",
         [&] { return it.copy_in(memory, host.data(), 64); });
  expect("cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync",
         [&] { return it.copy_out(host.data(), memory, 64); });
  expect("cuStreamSynchronize", "cuStreamSynchronize",
         [&] { return it.copy_in(memory, host.data(), 64); });
  expect("cuStreamSynchronize", "cuStreamSynchronize", [&] { return it.zero(memory, 64); });
  expect("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", [&] { return it.zero(memory, 64); });
  expect("cuMemcpyAsync", "cuMemcpyAsync",
         [&] { return it.copy(memory, memory + 32, 32, stream); });
  expect("cuCtxSynchronize", "cuCtxSynchronize", [&] { return it.finish(); });
  expect("cuStreamSynchronize", "cuStreamSynchronize", [&] { return it.synchronize(stream); });
  expect("cuStreamQuery", "cuStreamQuery", [&] { return it.reached(stream).status(); });
  expect("cuEventRecord", "cuEventRecord", [&] { return it.record(event, nullptr); });
  expect("cuEventQuery", "cuEventQuery", [&] { return it.reached_event(event).status(); });
  expect("cuStreamWaitEvent", "cuStreamWaitEvent", [&] { return it.wait_event(stream, event); });
  ASSERT_TRUE(it.finish().ok());
  expect("cuEventElapsedTime", "cuEventElapsedTime",
         [&] { return it.elapsed_us(event, later).status(); });
  expect("cuDeviceGetAttribute", "cuDeviceGetAttribute",
         [&] { return it.blocks_at_once(64).status(); });
  expect("cuOccupancyMaxActiveBlocksPerMultiprocessor",
         "cuOccupancyMaxActiveBlocksPerMultiprocessor",
         [&] { return it.blocks_at_once(64).status(); });
  expect("cuCtxPushCurrent_v2", "cuCtxPushCurrent", [&] { return it.synchronize(stream); });
  it.destroy_event(event);
  it.destroy_event(later);
  it.destroy_stream(stream);
  it.deallocate(memory);
}

TEST_F(CudaDeviceFailures, MemoryEnds) {
  fail_next("cuMemAlloc_v2", 2);
  const auto memory = device().allocate(12345);
  ASSERT_FALSE(memory.ok());
  EXPECT_THAT(memory.status().to_string(),
              AllOf(HasSubstr("12345 bytes of memory of CUDA stand-in 0"),
                    HasSubstr("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")));
}

TEST_F(CudaDeviceFailures, LaunchesThatAreRefusedAreNamed) {
  const auto stage = stage_on({0, 0});
  ASSERT_NE(stage, nullptr);
  ASSERT_TRUE(stage->set(sum_of(100)).ok());
  fail_next("cuLaunchKernel", kLaunchFailed);
  const Status status = stage->launch(0);
  EXPECT_EQ(status.code(), StatusCode::system_error);
  EXPECT_THAT(status.message(), HasSubstr("cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED"));
  EXPECT_TRUE(stage->run(sum_of(100)).ok()) << "nothing had happened";
  Launch launch;
  launch.threads = 513;
  EXPECT_THAT(device().launch(launch, nullptr).message(),
              HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
  launch.threads = 512;
  launch.blocks = 0;
  EXPECT_FALSE(device().launch(launch, nullptr).ok());
  const StreamHandle elsewhere = *device(1).make_stream();
  launch.blocks = 1;
  EXPECT_FALSE(device(0).launch(launch, elsewhere).ok()) << "another device's stream";
  device(1).destroy_stream(elsewhere);
}

// ---- Other drivers, which CMakeLists.txt puts in the place of the stand-in ----

TEST_F(CudaDeviceFailures, DISABLED_poor_HasNoGraphUpload) {
  const auto made = make_cuda_device(0, kSomeImage);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::unsupported);
  EXPECT_EQ(made.status().message(), "libcuda.so.1 runs no kernels: it has no cuGraphUpload");
}

// Before 12.4 kernels were loaded by looking at them.
TEST_F(CudaDeviceFailures, DISABLED_older_Works) {
  ASSERT_EQ(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuFuncLoad"), nullptr);
  fail_next("cuFuncGetAttribute", kLaunchFailed, 12);  // of the last kernel
  const auto made = make_cuda_device(0, kSomeImage);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().message(), HasSubstr("cuFuncGetAttribute: CUDA_ERROR_LAUNCH_FAILED"));
  const auto stage = stage_on({0, 0});
  ASSERT_NE(stage, nullptr);
  const Status status = stage->run(sum_of(100));
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace tutti::runtime::gpu
