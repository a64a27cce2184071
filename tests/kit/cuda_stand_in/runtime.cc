// runtime.cc: the stand-in's libcudart.so.13, which is a test kit and NOT CUDA: what programs that
// were compiled for the CUDA runtime call, told in terms of the stand-in's libcuda.so.1.
//
// Kernels that a program brings with it are refused, never faked.
#include <cstdio>
#include <cstring>
#include <utility>

#include "kit/cuda_stand_in/errors.hpp"
#include "kit/cuda_stand_in/stand_in.hpp"

namespace {

using namespace tutti::transport::cuda;

// Where the runtime of CUDA 13 has the fields of cudaDeviceProp and cudaPointerAttributes.
constexpr std::size_t kPropertiesBytes = 1008;
constexpr std::size_t kPropertiesTotalMemory = 288;
constexpr std::size_t kPropertiesMajor = 360;
constexpr std::size_t kPropertiesBus = 568;
struct PointerAttributes {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};

thread_local Code last_error = kSuccess;

Code note(Code code) {
  if (code != kSuccess && code != kNotReady) last_error = code;
  return code;
}

}  // namespace

// The functions of the driver that transport/cuda/types.hpp tells as pointers.
extern "C" {
Code cuInit(unsigned flags);
Code cuDeviceGetCount(int* count);
Code cuDeviceGetName(char* name, int bytes, Device device);
Code cuDeviceGetAttribute(int* value, int attribute, Device device);
Code cuDevicePrimaryCtxRetain(Context* context, Device device);
Code cuCtxGetCurrent(Context* context);
Code cuCtxGetDevice(Device* device);
Code cuMemAlloc_v2(DevicePointer* memory, std::size_t bytes);
Code cuMemFree_v2(DevicePointer memory);
Code cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags);
Code cuMemFreeHost(void* memory);
Code cuPointerGetAttributes(unsigned count, int* names, void** values, DevicePointer memory);
Code cuStreamCreate(Stream* stream, unsigned flags);
Code cuStreamDestroy_v2(Stream stream);
Code cuStreamSynchronize(Stream stream);
Code cuStreamQuery(Stream stream);
Code cuStreamIsCapturing(Stream stream, int* status);
Code cuStreamWaitEvent(Stream stream, Event event, unsigned flags);
Code cuLaunchHostFunc(Stream stream, HostFunction function, void* argument);
Code cuThreadExchangeStreamCaptureMode(int* mode);
Code cuEventCreate(Event* event, unsigned flags);
Code cuEventDestroy_v2(Event event);
Code cuEventRecord(Event event, Stream stream);
Code cuEventQuery(Event event);
Code cuEventSynchronize(Event event);
}

namespace {

Code use_device(int device) {
  Context context = nullptr;
  const Code code = cuDevicePrimaryCtxRetain(&context, device);
  return code != kSuccess ? code : cuCtxSetCurrent(context);
}

// A thread that has chosen no device works with the first one.
Code begin() {
  Context context = nullptr;
  const Code code = cuCtxGetCurrent(&context);
  return code != kSuccess || context != nullptr ? code : use_device(0);
}

DevicePointer as_device(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }

Code refuse_kernel() {
  static bool said = false;
  if (!said)
    std::fprintf(stderr,
                 "CUDA stand-in: a kernel was launched and refused: this is host memory that "
                 "stands in for CUDA in tests, and runs no kernels but Tutti's own.\n");
  said = true;
  return note(kNotSupported);
}

template <typename T>
void put(void* structure, std::size_t offset, const T& value) {
  std::memcpy(static_cast<char*>(structure) + offset, &value, sizeof value);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* cudaGetErrorName(Code code) {
  const stand_in::Error* const error = stand_in::find_error(code);
  return error != nullptr ? error->runtime_name : "unrecognized error code";
}

const char* cudaGetErrorString(Code code) {
  const stand_in::Error* const error = stand_in::find_error(code);
  return error != nullptr ? error->text : "unrecognized error code";
}

Code cudaGetLastError() { return std::exchange(last_error, kSuccess); }
Code cudaPeekAtLastError() { return last_error; }

Code cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
Code cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

Code cudaGetDeviceCount(int* count) {
  const Code code = cuInit(0);
  return note(code != kSuccess ? code : cuDeviceGetCount(count));
}

Code cudaSetDevice(int device) { return note(use_device(device)); }

Code cudaGetDevice(int* device) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuCtxGetDevice(device));
}

Code cudaDeviceSynchronize() {
  const Code code = begin();
  return note(code != kSuccess ? code : cuCtxSynchronize());
}

Code cudaDeviceReset() { return cudaDeviceSynchronize(); }

Code cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return note(cuDeviceGetAttribute(value, attribute, device));
}

Code cudaGetDeviceProperties(void* properties, int device) {
  char name[256] = "";
  if (const Code code = cuDeviceGetName(name, sizeof name, device); code != kSuccess)
    return note(code);
  std::memset(properties, 0, kPropertiesBytes);
  std::memcpy(properties, name, sizeof name);
  put(properties, kPropertiesTotalMemory, std::size_t{16} << 30);
  put(properties, kPropertiesMajor, 9);
  put(properties, kPropertiesBus, device + 1);
  return kSuccess;
}

Code cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuMemGetInfo_v2(unused, total));
}

Code cudaMalloc(void** memory, std::size_t bytes) {
  if (const Code code = begin(); code != kSuccess) return note(code);
  DevicePointer made = 0;
  const Code code = cuMemAlloc_v2(&made, bytes);
  *memory = reinterpret_cast<void*>(made);
  return note(code);
}

Code cudaFree(void* memory) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuMemFree_v2(as_device(memory)));
}

Code cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuMemHostAlloc(memory, bytes, flags));
}

Code cudaMallocHost(void** memory, std::size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }

Code cudaFreeHost(void* memory) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuMemFreeHost(memory));
}

Code cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, Stream stream) {
  const Code code = begin();
  return note(code != kSuccess ? code
                               : cuMemcpyAsync(as_device(to), as_device(from), bytes, stream));
}

Code cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  const Code code = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return note(code != kSuccess ? code : cuStreamSynchronize(nullptr));
}

Code cudaMemsetAsync(void* at, int value, std::size_t bytes, Stream stream) {
  const Code code = begin();
  return note(code != kSuccess ? code
                               : cuMemsetD8Async(as_device(at), static_cast<unsigned char>(value),
                                                 bytes, stream));
}

Code cudaMemset(void* at, int value, std::size_t bytes) {
  const Code code = cudaMemsetAsync(at, value, bytes, nullptr);
  return note(code != kSuccess ? code : cuStreamSynchronize(nullptr));
}

Code cudaPointerGetAttributes(PointerAttributes* attributes, const void* memory) {
  unsigned type = 0;
  int ordinal = -2;
  int names[] = {kPointerMemoryType, kPointerDeviceOrdinal};
  void* values[] = {&type, &ordinal};
  const Code code = cuPointerGetAttributes(2, names, values, as_device(memory));
  *attributes = {};
  attributes->type = static_cast<int>(type);
  attributes->device = ordinal;
  attributes->device_pointer = type == 0 ? nullptr : const_cast<void*>(memory);
  attributes->host_pointer = type == kMemoryTypeDevice ? nullptr : const_cast<void*>(memory);
  return note(code);
}

Code cudaStreamCreateWithFlags(Stream* stream, unsigned flags) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuStreamCreate(stream, flags));
}

Code cudaStreamCreate(Stream* stream) { return cudaStreamCreateWithFlags(stream, 0); }
Code cudaStreamDestroy(Stream stream) { return note(cuStreamDestroy_v2(stream)); }

Code cudaStreamSynchronize(Stream stream) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuStreamSynchronize(stream));
}

Code cudaStreamQuery(Stream stream) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuStreamQuery(stream));
}

Code cudaStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuStreamWaitEvent(stream, event, flags));
}

Code cudaLaunchHostFunc(Stream stream, HostFunction function, void* argument) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuLaunchHostFunc(stream, function, argument));
}

Code cudaStreamIsCapturing(Stream stream, int* status) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuStreamIsCapturing(stream, status));
}

Code cudaThreadExchangeStreamCaptureMode(int* mode) {
  return note(cuThreadExchangeStreamCaptureMode(mode));
}

Code cudaStreamBeginCapture(Stream stream, int mode) {
  return note(cuStreamBeginCapture_v2(stream, mode));
}

Code cudaStreamEndCapture(Stream stream, StandInGraph* graph) {
  return note(cuStreamEndCapture(stream, graph));
}

Code cudaGraphInstantiate(StandInInstance* instance, StandInGraph graph, unsigned long long flags) {
  return note(cuGraphInstantiateWithFlags(instance, graph, flags));
}

Code cudaGraphLaunch(StandInInstance instance, Stream stream) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuGraphLaunch(instance, stream));
}

Code cudaGraphExecDestroy(StandInInstance instance) { return note(cuGraphExecDestroy(instance)); }
Code cudaGraphDestroy(StandInGraph graph) { return note(cuGraphDestroy(graph)); }

Code cudaEventCreateWithFlags(Event* event, unsigned flags) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuEventCreate(event, flags));
}

Code cudaEventCreate(Event* event) { return cudaEventCreateWithFlags(event, 0); }
Code cudaEventDestroy(Event event) { return note(cuEventDestroy_v2(event)); }

Code cudaEventRecord(Event event, Stream stream) {
  const Code code = begin();
  return note(code != kSuccess ? code : cuEventRecord(event, stream));
}

Code cudaEventQuery(Event event) { return note(cuEventQuery(event)); }
Code cudaEventSynchronize(Event event) { return note(cuEventSynchronize(event)); }

Code cudaEventElapsedTime(float* milliseconds, Event from, Event to) {
  return note(cuEventElapsedTime(milliseconds, from, to));
}

// What compilers make of kernels. Arguments do not matter where nothing is launched.
Code cudaLaunchKernel(...) { return refuse_kernel(); }
Code cudaLaunchKernelExC(...) { return refuse_kernel(); }
Code __cudaLaunchKernel(...) { return refuse_kernel(); }
Code __cudaGetKernel(...) { return kSuccess; }
unsigned __cudaPushCallConfiguration(...) { return 0; }
Code __cudaPopCallConfiguration(...) { return kSuccess; }
void** __cudaRegisterFatBinary(void*) {
  static void* nothing = nullptr;
  return &nothing;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(...) {}
void __cudaRegisterVar(...) {}

}  // extern "C"
#pragma GCC visibility pop
