// Whether our few declarations of the CUDA driver are those of the toolkit, where there is one.
#include <gtest/gtest.h>

#include "transport/cuda/types.hpp"

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <type_traits>

namespace cuda = tutti::transport::cuda;
namespace {

// The same to a caller: of the same type, or an enumeration for a number of its size, or a pointer
// to such.
template <typename Ours, typename Theirs>
constexpr bool same_to_caller() {
  using O = std::remove_cv_t<Ours>;
  using T = std::remove_cv_t<Theirs>;
  if constexpr (std::is_same_v<O, T>)
    return true;
  else if constexpr (std::is_pointer_v<O> && std::is_pointer_v<T>)
    return same_to_caller<std::remove_pointer_t<O>, std::remove_pointer_t<T>>();
  else
    return std::is_integral_v<O> &&
           (std::is_enum_v<T> || std::is_integral_v<T>)&&sizeof(O) == sizeof(T);
}

template <typename Ours, typename Theirs>
struct SameFunction : std::false_type {};

template <typename R, typename... Args, typename OtherR, typename... OtherArgs>
struct SameFunction<R (*)(Args...), OtherR (*)(OtherArgs...)> {
  template <typename... A>
  struct List {};
  template <typename... A, typename... B>
  static constexpr bool same(List<A...>, List<B...>) {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return (same_to_caller<A, B>() && ...);
  }
  static constexpr bool value =
      same_to_caller<R, OtherR>() && same(List<Args...>(), List<OtherArgs...>());
};

template <typename Ours, typename Theirs>
constexpr bool kSame = SameFunction<Ours, Theirs>::value;

using F = cuda::Functions;

static_assert(std::is_same_v<cuda::Context, CUcontext>);
static_assert(std::is_same_v<cuda::Stream, CUstream>);
static_assert(std::is_same_v<cuda::Event, CUevent>);
static_assert(std::is_same_v<cuda::DevicePointer, CUdeviceptr>);
static_assert(std::is_same_v<cuda::Device, CUdevice>);
static_assert(std::is_same_v<cuda::HostFunction, CUhostFn>);
static_assert(sizeof(cuda::Code) == sizeof(CUresult));

static_assert(cuda::kSuccess == CUDA_SUCCESS);
static_assert(cuda::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(cuda::kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(cuda::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(cuda::kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(cuda::kCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(cuda::kCaptureInvalidated == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(cuda::kCaptureUnmatched == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
static_assert(cuda::kCaptureUnjoined == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
static_assert(cuda::kCaptureIsolation == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
static_assert(cuda::kCaptureStatusNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(cuda::kCaptureStatusActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(cuda::kCaptureStatusInvalidated == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
static_assert(cuda::kCaptureModeGlobal == CU_STREAM_CAPTURE_MODE_GLOBAL);
static_assert(cuda::kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(cuda::kPointerContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(cuda::kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(cuda::kPointerIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(cuda::kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(cuda::kMemoryTypeHost == CU_MEMORYTYPE_HOST);
static_assert(cuda::kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(cuda::kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(cuda::kHostAllocDeviceMap == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(cuda::kHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(cuda::kHostRegisterDeviceMap == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(cuda::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(cuda::kEventBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(cuda::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(cuda::kWaitValueEqual == CU_STREAM_WAIT_VALUE_EQ);
static_assert(cuda::kWriteValueDefault == CU_STREAM_WRITE_VALUE_DEFAULT);

// The header gives versioned functions their short names, so that these are the versions, too.
static_assert(kSame<decltype(F::cuInit), decltype(&cuInit)>);
static_assert(kSame<decltype(F::cuDriverGetVersion), decltype(&cuDriverGetVersion)>);
static_assert(kSame<decltype(F::cuGetErrorName), decltype(&cuGetErrorName)>);
static_assert(kSame<decltype(F::cuGetErrorString), decltype(&cuGetErrorString)>);
static_assert(kSame<decltype(F::cuDeviceGetCount), decltype(&cuDeviceGetCount)>);
static_assert(kSame<decltype(F::cuDeviceGet), decltype(&cuDeviceGet)>);
static_assert(kSame<decltype(F::cuDeviceGetName), decltype(&cuDeviceGetName)>);
static_assert(kSame<decltype(F::cuDeviceGetPCIBusId), decltype(&cuDeviceGetPCIBusId)>);
static_assert(kSame<decltype(F::cuDevicePrimaryCtxRetain), decltype(&cuDevicePrimaryCtxRetain)>);
static_assert(
    kSame<decltype(F::cuDevicePrimaryCtxRelease_v2), decltype(&cuDevicePrimaryCtxRelease_v2)>);
static_assert(kSame<decltype(F::cuCtxGetCurrent), decltype(&cuCtxGetCurrent)>);
static_assert(kSame<decltype(F::cuCtxPushCurrent_v2), decltype(&cuCtxPushCurrent_v2)>);
static_assert(kSame<decltype(F::cuCtxPopCurrent_v2), decltype(&cuCtxPopCurrent_v2)>);
static_assert(kSame<decltype(F::cuCtxGetDevice), CUresult (*)(CUdevice*)>);
static_assert(kSame<decltype(F::cuMemAlloc_v2), decltype(&cuMemAlloc_v2)>);
static_assert(kSame<decltype(F::cuMemFree_v2), decltype(&cuMemFree_v2)>);
static_assert(kSame<decltype(F::cuMemHostAlloc), decltype(&cuMemHostAlloc)>);
static_assert(kSame<decltype(F::cuMemFreeHost), decltype(&cuMemFreeHost)>);
static_assert(kSame<decltype(F::cuMemHostRegister_v2), decltype(&cuMemHostRegister_v2)>);
static_assert(kSame<decltype(F::cuMemHostUnregister), decltype(&cuMemHostUnregister)>);
static_assert(
    kSame<decltype(F::cuMemHostGetDevicePointer_v2), decltype(&cuMemHostGetDevicePointer_v2)>);
static_assert(kSame<decltype(F::cuPointerGetAttributes), decltype(&cuPointerGetAttributes)>);
static_assert(kSame<decltype(F::cuMemcpyDtoHAsync_v2), decltype(&cuMemcpyDtoHAsync_v2)>);
static_assert(kSame<decltype(F::cuMemcpyHtoDAsync_v2), decltype(&cuMemcpyHtoDAsync_v2)>);
static_assert(kSame<decltype(F::cuStreamCreate), decltype(&cuStreamCreate)>);
static_assert(kSame<decltype(F::cuStreamDestroy_v2), decltype(&cuStreamDestroy_v2)>);
static_assert(kSame<decltype(F::cuStreamSynchronize), decltype(&cuStreamSynchronize)>);
static_assert(kSame<decltype(F::cuStreamQuery), decltype(&cuStreamQuery)>);
static_assert(kSame<decltype(F::cuStreamIsCapturing), decltype(&cuStreamIsCapturing)>);
static_assert(kSame<decltype(F::cuThreadExchangeStreamCaptureMode),
                    decltype(&cuThreadExchangeStreamCaptureMode)>);
static_assert(kSame<decltype(F::cuStreamWaitEvent), decltype(&cuStreamWaitEvent)>);
static_assert(kSame<decltype(F::cuLaunchHostFunc), decltype(&cuLaunchHostFunc)>);
static_assert(kSame<decltype(F::cuStreamWaitValue32_v2), decltype(&cuStreamWaitValue32_v2)>);
static_assert(kSame<decltype(F::cuStreamWriteValue32_v2), decltype(&cuStreamWriteValue32_v2)>);
static_assert(kSame<decltype(F::cuEventCreate), decltype(&cuEventCreate)>);
static_assert(kSame<decltype(F::cuEventDestroy_v2), decltype(&cuEventDestroy_v2)>);
static_assert(kSame<decltype(F::cuEventRecord), decltype(&cuEventRecord)>);
static_assert(kSame<decltype(F::cuEventQuery), decltype(&cuEventQuery)>);
static_assert(kSame<decltype(F::cuEventSynchronize), decltype(&cuEventSynchronize)>);

TEST(CudaTypes, AreTheToolkits) {
  // Checked by the compiler, above.
  EXPECT_GE(CUDA_VERSION, 11070);
}

}  // namespace
#else
TEST(CudaTypes, AreTheToolkits) { GTEST_SKIP() << "there is no CUDA toolkit to compare with"; }
#endif
