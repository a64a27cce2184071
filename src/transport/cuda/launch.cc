// launch.cc: see launch.hpp.
#include "transport/cuda/launch.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "transport/cuda/loader.hpp"

namespace tutti::transport::cuda {
namespace {

void load_kernels(Loader& load, LaunchFunctions& f) {
  load(f.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  load(f.cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  load(f.cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess");
  load(f.cuCtxSynchronize, "cuCtxSynchronize");
  load(f.cuModuleLoadData, "cuModuleLoadData");
  load(f.cuModuleUnload, "cuModuleUnload");
  load(f.cuModuleGetFunction, "cuModuleGetFunction");
  load(f.cuFuncGetAttribute, "cuFuncGetAttribute");
  load(f.cuOccupancyMaxActiveBlocksPerMultiprocessor,
       "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  load(f.cuLaunchKernel, "cuLaunchKernel");
  load.try_to(f.cuFuncLoad, "cuFuncLoad");
  load.try_to(f.cuFlushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites");
}

void load_streams(Loader& load, LaunchFunctions& f) {
  load(f.cuMemcpyAsync, "cuMemcpyAsync");
  load(f.cuPointerGetAttribute, "cuPointerGetAttribute");
  load(f.cuMemGetAddressRange_v2, "cuMemGetAddressRange_v2");
  load(f.cuIpcGetMemHandle, "cuIpcGetMemHandle");
  load(f.cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle_v2");
  load(f.cuIpcCloseMemHandle, "cuIpcCloseMemHandle");
  load(f.cuStreamBeginCapture_v2, "cuStreamBeginCapture_v2");
  load(f.cuStreamEndCapture, "cuStreamEndCapture");
  load(f.cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags");
  load(f.cuGraphUpload, "cuGraphUpload");
  load(f.cuGraphLaunch, "cuGraphLaunch");
  load(f.cuGraphExecDestroy, "cuGraphExecDestroy");
  load(f.cuGraphDestroy, "cuGraphDestroy");
  load(f.cuEventElapsedTime, "cuEventElapsedTime");
}

}  // namespace

// The library stays open, as driver.cc has it.
Result<LaunchFunctions> find_launch_functions(const char* library) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const error = dlerror();
    return Status(StatusCode::unsupported, fmt::format("no CUDA driver: {}: {}", library,
                                                       error != nullptr ? error : "not opened"));
  }
  LaunchFunctions functions = {};
  Loader load(opened);
  load_kernels(load, functions);
  load_streams(load, functions);
  if (load.missing().empty()) return functions;
  return Status(StatusCode::unsupported,
                fmt::format("{} runs no kernels: it has no {}", library, load.missing()));
}

}  // namespace tutti::transport::cuda
