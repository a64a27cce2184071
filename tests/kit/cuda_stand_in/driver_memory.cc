// driver_memory.cc: the stand-in's libcuda.so.1 (a test kit that is NOT CUDA): devices, contexts
// and memory.
#include <cstdio>
#include <cstring>

#include "kit/cuda_stand_in/calls.hpp"
#include "kit/cuda_stand_in/errors.hpp"
#include "kit/cuda_stand_in/kernels.hpp"
#include "kit/cuda_stand_in/memory.hpp"
#include "kit/cuda_stand_in/stand_in.hpp"
#include "transport/cuda/launch.hpp"

namespace {

using namespace stand_in;

constexpr std::size_t kDeviceBytes = std::size_t{16} << 30;  // what a device claims to have

// To free memory is to wait for all that the device does, as on many a real device: who waits in
// turn for whoever frees it hangs here, too.
Code free_memory(std::uintptr_t begin, Kind kind, Code missing) {
  const auto found = Memory::instance().find(begin);
  if (!found) return missing;
  Streams::instance().wait_until_idle(found->context);
  return Memory::instance().release(begin, kind) ? kSuccess : missing;
}

std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

// One word at once, as devices do: kernels may be looking at it, or writing it.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (bytes != kWord || address_of(to) % kWord != 0 || address_of(from) % kWord != 0) {
    std::memmove(to, from, bytes);
    return;
  }
  const std::uint64_t word =
      __atomic_load_n(reinterpret_cast<const std::uint64_t*>(from), __ATOMIC_SEQ_CST);
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), word, __ATOMIC_SEQ_CST);
}

// The device on which a copy is a kernel; none for those of copy engines.
std::optional<int> device_of_copy(std::uintptr_t to, std::uintptr_t from) {
  const auto target = Memory::instance().find(to);
  const auto source = Memory::instance().find(from);
  const bool inside = target && source && target->kind == Kind::device &&
                      source->kind == Kind::device && target->ordinal == source->ordinal;
  return inside ? std::optional(target->ordinal) : std::nullopt;
}

Code copy(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return Streams::instance().enqueue(resolve(stream), [] {});
  std::byte* const target = Memory::instance().reach(to, bytes);
  const std::byte* const source = Memory::instance().reach(from, bytes);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  const std::optional<int> device = device_of_copy(to, from);
  return Streams::instance().enqueue(resolve(stream), [=] {
    std::optional<SmallKernel> kernel;
    if (device) kernel.emplace(*device);
    copy_bytes(target, source, bytes);
  });
}

void store_attribute(int name, void* value, const std::optional<Allocation>& place) {
  const bool device = place && place->kind == Kind::device;
  if (name == kPointerContext)
    *static_cast<Context*>(value) = place ? place->context : nullptr;
  else if (name == kPointerMemoryType)
    *static_cast<unsigned*>(value) = !place ? 0 : device ? kMemoryTypeDevice : kMemoryTypeHost;
  else if (name == kPointerIsManaged)
    *static_cast<unsigned*>(value) = 0;
  else if (name == kPointerDeviceOrdinal)
    *static_cast<int*>(value) = place ? place->ordinal : -2;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void tutti_stand_in_fail(const char* function, int code, int after) {
  fail_next(function, code, after);
}

void tutti_stand_in_count(TuttiStandInCounts* counts) {
  counts->device_memory = Memory::instance().count(Kind::device);
  counts->host_memory = Memory::instance().count(Kind::allocated);
  counts->registered_memory = Memory::instance().count(Kind::registered);
  counts->streams = Streams::instance().stream_count();
  counts->events = Streams::instance().event_count();
  counts->graphs = graph_count();
  counts->modules = module_count();
  counts->blocks = block_count();
  counts->flushes = flush_count();
  counts->objects = Memory::instance().object_count();
  counts->reservations = Memory::instance().reservation_count();
}

void* tutti_stand_in_reach(const void* memory, std::size_t bytes) {
  const auto found = Memory::instance().find(address_of(memory));
  if (!found || found->kind != Kind::device) return nullptr;
  return Memory::instance().reach(address_of(memory), bytes);
}

bool tutti_stand_in_is_mapped_elsewhere(const void* memory) {
  return Memory::instance().is_mapped_elsewhere(address_of(memory));
}

Code cuInit(unsigned) { return device_count() > 0 ? kSuccess : kNoDevice; }

Code cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

Code cuGetErrorName(Code code, const char** name) {
  const Error* const error = find_error(code);
  *name = error != nullptr ? error->driver_name : nullptr;
  return error != nullptr ? kSuccess : kInvalidValue;
}

Code cuGetErrorString(Code code, const char** text) {
  const Error* const error = find_error(code);
  *text = error != nullptr ? error->text : nullptr;
  return error != nullptr ? kSuccess : kInvalidValue;
}

Code cuDeviceGetCount(int* count) {
  *count = device_count();
  return refused(__func__);
}

Code cuDeviceGet(Device* device, int ordinal) {
  *device = ordinal;
  return is_device(ordinal) ? kSuccess : 101;
}

Code cuDeviceGetName(char* name, int bytes, Device device) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "CUDA stand-in %d (host memory)", device);
  return is_device(device) ? kSuccess : 101;
}

Code cuDeviceGetPCIBusId(char* id, int bytes, Device device) {
  std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device + 1);
  return is_device(device) ? kSuccess : 101;
}

Code cuDevicePrimaryCtxRetain(Context* context, Device device) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  if (!is_device(device)) return 101;
  *context = primary_context(device);
  return kSuccess;
}

// What a device has stays until the program ends.
Code cuDevicePrimaryCtxRelease_v2(Device device) { return is_device(device) ? kSuccess : 101; }

Code cuCtxGetCurrent(Context* context) {
  *context = current_context();
  return refused(__func__);
}

Code cuCtxSetCurrent(Context context) {
  set_context(context);
  return refused(__func__);
}

Code cuCtxPushCurrent_v2(Context context) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return push_context(context) ? kSuccess : 201;
}

Code cuCtxPopCurrent_v2(Context* context) { return pop_context(context) ? kSuccess : 201; }

Code cuCtxGetDevice(Device* device) {
  if (current_context() == nullptr) return 201;
  *device = current_context()->ordinal;
  return refused(__func__);
}

Code cuCtxSynchronize() {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  return Streams::instance().synchronize(current_context());
}

Code cuMemGetInfo_v2(std::size_t* unused, std::size_t* total) {
  if (current_context() == nullptr) return 201;
  *total = kDeviceBytes;
  *unused = kDeviceBytes - Memory::instance().device_bytes(current_context()->ordinal);
  return refused(__func__);
}

Code cuMemAlloc_v2(DevicePointer* memory, std::size_t bytes) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  if (bytes == 0) return kInvalidValue;
  const Context context = current_context();
  *memory = Memory::instance().allocate_device(context, context->ordinal, bytes);
  return *memory != 0 ? kSuccess : kOutOfMemory;
}

// Made at once, and given back by cuMemFree_v2: what matters is that peers cannot have it.
Code cuMemAllocAsync(DevicePointer* memory, std::size_t bytes, Stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const Context context = current_context();
  if (context == nullptr) return 201;
  if (bytes == 0) return kInvalidValue;
  *memory = Memory::instance().allocate_device(context, context->ordinal, bytes, true);
  return *memory != 0 ? kSuccess : kOutOfMemory;
}

Code cuMemFree_v2(DevicePointer memory) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  return memory == 0 ? kSuccess : free_memory(memory, Kind::device, kInvalidValue);
}

Code cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  const Context context = current_context();
  *memory = Memory::instance().allocate_host(context, context->ordinal, bytes);
  return *memory != nullptr ? kSuccess : kOutOfMemory;
}

Code cuMemFreeHost(void* memory) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  return free_memory(address_of(memory), Kind::allocated, kInvalidValue);
}

Code cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  const Context context = current_context();
  return Memory::instance().register_host(context, context->ordinal, memory, bytes) ? kSuccess
                                                                                    : 712;
}

Code cuMemHostUnregister(void* memory) {
  if (const Code code = refused_now(__func__); code != kSuccess) return code;
  return free_memory(address_of(memory), Kind::registered, 713);
}

Code cuMemHostGetDevicePointer_v2(DevicePointer* device, void* memory, unsigned) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find(address_of(memory));
  if (!found || found->kind == Kind::device) return kInvalidValue;
  *device = address_of(memory);
  return kSuccess;
}

Code cuPointerGetAttributes(unsigned count, int* names, void** values, DevicePointer memory) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find(memory);
  for (unsigned i = 0; i < count; ++i) store_attribute(names[i], values[i], found);
  return kSuccess;
}

Code cuMemGetAddressRange_v2(DevicePointer* begin, std::size_t* bytes, DevicePointer memory) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find(memory);
  if (!found || found->kind != Kind::device) return kInvalidValue;
  *begin = found->begin;
  *bytes = found->bytes;
  return kSuccess;
}

Code cuPointerGetAttribute(void* value, int attribute, DevicePointer memory) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  const auto found = Memory::instance().find(memory);
  if (!found) return kInvalidValue;
  if (attribute == kPointerIsIpcCapable)
    *static_cast<int*>(value) =
        found->kind == Kind::device && !found->pooled && found->object == 0 ? 1 : 0;
  else if (attribute == kPointerBufferId)
    *static_cast<unsigned long long*>(value) = found->id;
  else
    store_attribute(attribute, value, found);
  return kSuccess;
}

Code cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes, Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return copy(address_of(to), from, bytes, stream);
}

Code cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, std::size_t bytes, Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return copy(to, address_of(from), bytes, stream);
}

Code cuMemcpyAsync(DevicePointer to, DevicePointer from, std::size_t bytes, Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  return copy(to, from, bytes, stream);
}

Code cuMemsetD8Async(DevicePointer at, unsigned char value, std::size_t bytes, Stream stream) {
  if (const Code code = refused(__func__); code != kSuccess) return code;
  std::byte* const target = Memory::instance().reach(at, bytes);
  if (target == nullptr) return kInvalidValue;
  const auto found = Memory::instance().find(at);
  return Streams::instance().enqueue(resolve(stream), [=] {
    std::optional<SmallKernel> kernel;
    if (found && found->kind == Kind::device) kernel.emplace(found->ordinal);
    if (bytes > 0) std::memset(target, value, bytes);
  });
}

}  // extern "C"
#pragma GCC visibility pop
