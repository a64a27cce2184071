// Whether our declarations of the driver's functions that run kernels are those of the toolkit,
// where there is one; and what is said where the functions are not.
#include <gmock/gmock.h>

#include "transport/cuda/launch.hpp"
#include "transport/cuda/mapping.hpp"

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

TEST(CudaMappingFunctions, NamesTheFunctionThatIsMissing) {
  const auto found = cuda::find_mapping_functions("libm.so.6");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), tutti::StatusCode::unsupported);
  EXPECT_THAT(found.status().message(), ::testing::HasSubstr("it has no cuDeviceGetAttribute"));
  EXPECT_FALSE(cuda::find_mapping_functions("libtutti-has-no-such-library.so.1").ok());
}

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <cstddef>
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

using M = cuda::MappingFunctions;

static_assert(kSame<decltype(M::cuMemAddressReserve), decltype(&cuMemAddressReserve)>);
static_assert(kSame<decltype(M::cuMemAddressFree), decltype(&cuMemAddressFree)>);
static_assert(kSame<decltype(M::cuMemCreate), decltype(&cuMemCreate)>);
static_assert(kSame<decltype(M::cuMemRelease), decltype(&cuMemRelease)>);
static_assert(kSame<decltype(M::cuMemMap), decltype(&cuMemMap)>);
static_assert(kSame<decltype(M::cuMemUnmap), decltype(&cuMemUnmap)>);
static_assert(kSame<decltype(M::cuMemSetAccess), decltype(&cuMemSetAccess)>);
static_assert(kSame<decltype(M::cuMemGetAccess), decltype(&cuMemGetAccess)>);
static_assert(
    kSame<decltype(M::cuMemExportToShareableHandle), decltype(&cuMemExportToShareableHandle)>);
static_assert(
    kSame<decltype(M::cuMemImportFromShareableHandle), decltype(&cuMemImportFromShareableHandle)>);
static_assert(
    kSame<decltype(M::cuMemGetAllocationGranularity), decltype(&cuMemGetAllocationGranularity)>);
static_assert(kSame<decltype(M::cuMemGetAllocationPropertiesFromHandle),
                    decltype(&cuMemGetAllocationPropertiesFromHandle)>);
static_assert(
    kSame<decltype(M::cuMemRetainAllocationHandle), decltype(&cuMemRetainAllocationHandle)>);

static_assert(cuda::kNotPermitted == CUDA_ERROR_NOT_PERMITTED);
static_assert(cuda::kDeviceMapsMemory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(cuda::kDeviceMapsForCards ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
static_assert(cuda::kByDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(cuda::kObjectPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(cuda::kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(cuda::kAccessBoth == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(cuda::kGranularityRecommended == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
static_assert(sizeof(cuda::ObjectProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(cuda::ObjectProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(cuda::ObjectProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(offsetof(cuda::ObjectProperties, for_cards) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(sizeof(cuda::MemoryAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(cuda::MemoryAccess, flags) == offsetof(CUmemAccessDesc, flags));
#if CUDA_VERSION >= 12030
static_assert(cuda::kDeviceHasFabric == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
static_assert(cuda::kByFabric == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(sizeof(cuda::FabricHandle) == sizeof(CUmemFabricHandle));
#endif

}  // namespace

TEST(CudaLaunch, DeclaresWhatTheToolkitDeclares) {}

#else

TEST(CudaLaunch, DeclaresWhatTheToolkitDeclares) { GTEST_SKIP() << "there is no CUDA toolkit"; }

#endif
