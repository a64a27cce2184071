// Whether our declarations of the driver's functions that run kernels are those of the toolkit,
// where there is one; and what is said where the functions are not.
#include <gmock/gmock.h>

#include "transport/cuda/launch.hpp"

namespace cuda = tutti::transport::cuda;

TEST(CudaLaunch, NamesTheLibraryThatIsMissing) {
  const auto found = cuda::find_launch_functions("libtutti-has-no-such-library.so.1");
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), ::testing::HasSubstr("libtutti-has-no-such-library.so.1"));
}

TEST(CudaLaunch, NamesTheFunctionThatIsMissing) {
  const auto found = cuda::find_launch_functions("libm.so.6");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), tutti::StatusCode::unsupported);
  EXPECT_THAT(found.status().message(), ::testing::HasSubstr("it has no cuDeviceGetAttribute"));
}

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <type_traits>

namespace {

// Enumerations count as the numbers that they are passed as, pointers to anything as pointers.
template <typename T>
struct Passed {
  using Type = std::conditional_t<std::is_pointer_v<T>, void*, T>;
};
template <typename T>
requires std::is_enum_v<T>
struct Passed<T> {
  using Type = int;
};
template <typename T>
constexpr bool kIsHandle = std::is_same_v<T, cuda::Module> || std::is_same_v<T, cuda::Function> ||
                           std::is_same_v<T, cuda::Graph> || std::is_same_v<T, cuda::Stream> ||
                           std::is_same_v<T, cuda::GraphInstance> ||
                           std::is_same_v<T, cuda::Context> || std::is_same_v<T, cuda::Event>;

template <typename Ours, typename Theirs>
constexpr bool same_to_caller() {
  if constexpr (kIsHandle<Ours> || kIsHandle<Theirs>)
    return std::is_same_v<Ours, Theirs>;
  else if constexpr (std::is_integral_v<Ours> && std::is_integral_v<Theirs>)
    return sizeof(Ours) == sizeof(Theirs) && std::is_signed_v<Ours> == std::is_signed_v<Theirs>;
  else
    return std::is_same_v<typename Passed<Ours>::Type, typename Passed<Theirs>::Type>;
}

template <typename Ours, typename Theirs>
struct SameFunction : std::false_type {};
template <typename R, typename... Args, typename OtherR, typename... OtherArgs>
requires(sizeof...(Args) ==
         sizeof...(OtherArgs)) struct SameFunction<R (*)(Args...), OtherR (*)(OtherArgs...)>
    : std::bool_constant<same_to_caller<R, OtherR>() &&
                         (same_to_caller<Args, OtherArgs>() && ...)> {
};
template <typename Ours, typename Theirs>
constexpr bool kSame = SameFunction<Ours, Theirs>::value;

using F = cuda::LaunchFunctions;

static_assert(std::is_same_v<cuda::Module, CUmodule>);
static_assert(std::is_same_v<cuda::Function, CUfunction>);
static_assert(std::is_same_v<cuda::Graph, CUgraph>);
static_assert(std::is_same_v<cuda::GraphInstance, CUgraphExec>);

static_assert(cuda::kPeerAccessAlreadyEnabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(cuda::kCaptureModeThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(cuda::kDeviceMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(cuda::kDeviceMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(cuda::kDeviceMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(cuda::kPointerBufferId == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(cuda::kPointerIsIpcCapable == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
static_assert(cuda::kFunctionRegisters == CU_FUNC_ATTRIBUTE_NUM_REGS);

static_assert(kSame<decltype(F::cuDeviceGetAttribute), decltype(&cuDeviceGetAttribute)>);
static_assert(kSame<decltype(F::cuDeviceCanAccessPeer), decltype(&cuDeviceCanAccessPeer)>);
static_assert(kSame<decltype(F::cuCtxEnablePeerAccess), decltype(&cuCtxEnablePeerAccess)>);
static_assert(kSame<decltype(F::cuCtxSynchronize), decltype(&cuCtxSynchronize)>);
static_assert(kSame<decltype(F::cuModuleLoadData), decltype(&cuModuleLoadData)>);
static_assert(kSame<decltype(F::cuModuleUnload), decltype(&cuModuleUnload)>);
static_assert(kSame<decltype(F::cuModuleGetFunction), decltype(&cuModuleGetFunction)>);
static_assert(kSame<decltype(F::cuFuncGetAttribute), decltype(&cuFuncGetAttribute)>);
static_assert(kSame<decltype(F::cuOccupancyMaxActiveBlocksPerMultiprocessor),
                    decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor)>);
static_assert(kSame<decltype(F::cuLaunchKernel), decltype(&cuLaunchKernel)>);
static_assert(kSame<decltype(F::cuMemcpyAsync), decltype(&cuMemcpyAsync)>);
static_assert(kSame<decltype(F::cuMemGetAddressRange_v2), decltype(&cuMemGetAddressRange_v2)>);
static_assert(kSame<decltype(F::cuPointerGetAttribute), decltype(&cuPointerGetAttribute)>);
static_assert(kSame<decltype(F::cuStreamBeginCapture_v2), decltype(&cuStreamBeginCapture)>);
static_assert(kSame<decltype(F::cuStreamEndCapture), decltype(&cuStreamEndCapture)>);
static_assert(
    kSame<decltype(F::cuGraphInstantiateWithFlags), decltype(&cuGraphInstantiateWithFlags)>);
static_assert(kSame<decltype(F::cuGraphUpload), decltype(&cuGraphUpload)>);
static_assert(kSame<decltype(F::cuGraphLaunch), decltype(&cuGraphLaunch)>);
static_assert(kSame<decltype(F::cuGraphExecDestroy), decltype(&cuGraphExecDestroy)>);
static_assert(kSame<decltype(F::cuGraphDestroy), decltype(&cuGraphDestroy)>);
// The toolkit renames it to a later version; earlier drivers have the first one only.
#undef cuEventElapsedTime
static_assert(kSame<decltype(F::cuEventElapsedTime), CUresult (*)(float*, CUevent, CUevent)>);
static_assert(kSame<decltype(F::cuFuncLoad), decltype(&cuFuncLoad)>);

}  // namespace

TEST(CudaLaunch, DeclaresWhatTheToolkitDeclares) {}

#else

TEST(CudaLaunch, DeclaresWhatTheToolkitDeclares) { GTEST_SKIP() << "there is no CUDA toolkit"; }

#endif
