// launch.hpp: the part of the CUDA driver's interface that runs kernels: modules, launches,
// captured graphs, peers, times. A table of its own beside types.hpp, because most of Tutti moves
// bytes of devices without running anything on them, and must not need it.
//
// Does not know what kernels there are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/cuda/types.hpp"
#include "tutti/status.hpp"

struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace tutti::transport::cuda {

using Module = ::CUmod_st*;
using Function = ::CUfunc_st*;
using Graph = ::CUgraph_st*;
using GraphInstance = ::CUgraphExec_st*;

inline constexpr Code kPeerAccessAlreadyEnabled = 704;

inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kDeviceMultiprocessors = 16;
inline constexpr int kDeviceMajor = 75;
inline constexpr int kDeviceMinor = 76;
inline constexpr int kDeviceRdma = 116;              // GPUDirect RDMA
inline constexpr int kDeviceRdmaFlushOptions = 117;  // bits, as below
inline constexpr int kDeviceRdmaWritesOrdering = 118;
inline constexpr int kRdmaFlushByHost = 1;
inline constexpr int kRdmaOrderedForOwner = 100;  // or a higher number: nothing is to be flushed
inline constexpr int kRdmaFlushCurrentContext = 0;
inline constexpr int kRdmaFlushToOwner = 100;
inline constexpr int kPointerBufferId = 7;
inline constexpr int kPointerIsIpcCapable = 10;
inline constexpr unsigned kIpcEnablePeerAccess = 1;
inline constexpr int kFunctionRegisters = 4;

// What another process opens a piece of memory by.
struct IpcHandle {
  std::byte bytes[64];
};

// By the names under which the library has them.
struct LaunchFunctions {
  Code (*cuDeviceGetAttribute)(int* value, int attribute, Device device);
  Code (*cuDeviceCanAccessPeer)(int* can, Device device, Device peer);
  Code (*cuCtxEnablePeerAccess)(Context peer, unsigned flags);
  Code (*cuCtxSynchronize)();
  Code (*cuModuleLoadData)(Module* module, const void* image);
  Code (*cuModuleUnload)(Module module);
  Code (*cuModuleGetFunction)(Function* function, Module module, const char* name);
  Code (*cuFuncGetAttribute)(int* value, int attribute, Function function);
  Code (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, Function function, int threads,
                                                      std::size_t shared_bytes);
  Code (*cuLaunchKernel)(Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                         unsigned threads_x, unsigned threads_y, unsigned threads_z,
                         unsigned shared_bytes, Stream stream, void** arguments, void** extra);
  Code (*cuMemcpyAsync)(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream);
  Code (*cuIpcGetMemHandle)(IpcHandle* handle, DevicePointer memory);
  Code (*cuIpcOpenMemHandle_v2)(DevicePointer* memory, IpcHandle handle, unsigned flags);
  Code (*cuIpcCloseMemHandle)(DevicePointer memory);
  Code (*cuMemGetAddressRange_v2)(DevicePointer* begin, std::size_t* bytes, DevicePointer memory);
  Code (*cuPointerGetAttribute)(void* value, int attribute, DevicePointer memory);
  Code (*cuStreamBeginCapture_v2)(Stream stream, int mode);
  Code (*cuStreamEndCapture)(Stream stream, Graph* graph);
  Code (*cuGraphInstantiateWithFlags)(GraphInstance* instance, Graph graph, std::uint64_t flags);
  Code (*cuGraphUpload)(GraphInstance instance, Stream stream);
  Code (*cuGraphLaunch)(GraphInstance instance, Stream stream);
  Code (*cuGraphExecDestroy)(GraphInstance instance);
  Code (*cuGraphDestroy)(Graph graph);
  Code (*cuEventElapsedTime)(float* milliseconds, Event from, Event to);
  // Loads a kernel now and not at its first launch, which may wait for all that the device does.
  // Null: the driver is older than 12.4.
  Code (*cuFuncLoad)(Function function);
  // Null: the driver is older than 11.3.
  Code (*cuFlushGPUDirectRDMAWrites)(int target, int scope);
};

// The functions of a driver that has been found (driver.hpp) in a library of this name.
// Errors  unsupported, with the name of the first one that is missing.
Result<LaunchFunctions> find_launch_functions(const char* library = "libcuda.so.1");

}  // namespace tutti::transport::cuda
