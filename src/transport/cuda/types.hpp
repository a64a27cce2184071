// types.hpp: the few types and numbers of the CUDA driver's interface that Tutti uses, so that it
// is built where there is no CUDA toolkit. A test holds them against the toolkit's own where there
// is one.
//
// Does not know how the driver is found or called.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

namespace tutti::transport::cuda {

using Context = ::CUctx_st*;
using Stream = ::CUstream_st*;  // null: the device's default stream
using Event = ::CUevent_st*;
using DevicePointer = unsigned long long;
using Device = int;
using Code = int;  // what every function of the driver returns
using HostFunction = void (*)(void*);

inline constexpr Code kSuccess = 0;
inline constexpr Code kInvalidValue = 1;
inline constexpr Code kOutOfMemory = 2;
inline constexpr Code kNoDevice = 100;
inline constexpr Code kNotReady = 600;
inline constexpr Code kNotSupported = 801;
inline constexpr Code kCaptureUnsupported = 900;
inline constexpr Code kCaptureInvalidated = 901;
inline constexpr Code kCaptureUnmatched = 903;
inline constexpr Code kCaptureUnjoined = 904;
inline constexpr Code kCaptureIsolation = 905;

inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kCaptureStatusActive = 1;
inline constexpr int kCaptureStatusInvalidated = 2;
inline constexpr int kCaptureModeGlobal = 0;
inline constexpr int kCaptureModeRelaxed = 2;

inline constexpr int kPointerContext = 1;
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kMemoryTypeHost = 1;
inline constexpr int kMemoryTypeDevice = 2;

inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocDeviceMap = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kWaitValueEqual = 1;
inline constexpr unsigned kWriteValueDefault = 0;

// The functions, by the names under which the library has them; the versions are those of their
// latest form in the driver for CUDA 12 that later drivers have, too.
struct Functions {
  Code (*cuInit)(unsigned flags);
  Code (*cuDriverGetVersion)(int* version);
  Code (*cuGetErrorName)(Code code, const char** name);
  Code (*cuGetErrorString)(Code code, const char** text);
  Code (*cuDeviceGetCount)(int* count);
  Code (*cuDeviceGet)(Device* device, int ordinal);
  Code (*cuDeviceGetName)(char* name, int bytes, Device device);
  Code (*cuDeviceGetPCIBusId)(char* id, int bytes, Device device);
  Code (*cuDevicePrimaryCtxRetain)(Context* context, Device device);
  Code (*cuDevicePrimaryCtxRelease_v2)(Device device);
  Code (*cuCtxGetCurrent)(Context* context);
  Code (*cuCtxPushCurrent_v2)(Context context);
  Code (*cuCtxPopCurrent_v2)(Context* context);
  Code (*cuCtxGetDevice)(Device* device);
  Code (*cuMemAlloc_v2)(DevicePointer* memory, std::size_t bytes);
  Code (*cuMemFree_v2)(DevicePointer memory);
  Code (*cuMemHostAlloc)(void** memory, std::size_t bytes, unsigned flags);
  Code (*cuMemFreeHost)(void* memory);
  Code (*cuMemHostRegister_v2)(void* memory, std::size_t bytes, unsigned flags);
  Code (*cuMemHostUnregister)(void* memory);
  Code (*cuMemHostGetDevicePointer_v2)(DevicePointer* device, void* memory, unsigned flags);
  Code (*cuPointerGetAttributes)(unsigned count, int* names, void** values, DevicePointer memory);
  Code (*cuMemcpyDtoHAsync_v2)(void* to, DevicePointer from, std::size_t bytes, Stream stream);
  Code (*cuMemcpyHtoDAsync_v2)(DevicePointer to, const void* from, std::size_t bytes,
                               Stream stream);
  Code (*cuStreamCreate)(Stream* stream, unsigned flags);
  Code (*cuStreamDestroy_v2)(Stream stream);
  Code (*cuStreamSynchronize)(Stream stream);
  Code (*cuStreamQuery)(Stream stream);
  Code (*cuStreamIsCapturing)(Stream stream, int* status);
  Code (*cuStreamGetCaptureInfo)(Stream stream, int* status, std::uint64_t* id);
  Code (*cuThreadExchangeStreamCaptureMode)(int* mode);
  Code (*cuStreamWaitEvent)(Stream stream, Event event, unsigned flags);
  Code (*cuLaunchHostFunc)(Stream stream, HostFunction function, void* argument);
  Code (*cuStreamWaitValue32_v2)(Stream stream, DevicePointer at, std::uint32_t value,
                                 unsigned flags);
  Code (*cuStreamWriteValue32_v2)(Stream stream, DevicePointer at, std::uint32_t value,
                                  unsigned flags);
  Code (*cuEventCreate)(Event* event, unsigned flags);
  Code (*cuEventDestroy_v2)(Event event);
  Code (*cuEventRecord)(Event event, Stream stream);
  Code (*cuEventQuery)(Event event);
  Code (*cuEventSynchronize)(Event event);
};

}  // namespace tutti::transport::cuda
