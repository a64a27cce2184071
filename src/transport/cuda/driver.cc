// driver.cc: see driver.hpp.
#include "transport/cuda/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

#include "base/try.hpp"
#include "transport/cuda/loader.hpp"

namespace tutti::transport::cuda {
namespace {

DevicePointer as_device(const void* memory) { return reinterpret_cast<DevicePointer>(memory); }

void* as_memory(DevicePointer memory) {
  return reinterpret_cast<void*>(memory);  // NOLINT(performance-no-int-to-ptr)
}

void load_devices(Loader& load, Functions& f) {
  load(f.cuInit, "cuInit");
  load(f.cuDriverGetVersion, "cuDriverGetVersion");
  load(f.cuGetErrorName, "cuGetErrorName");
  load(f.cuGetErrorString, "cuGetErrorString");
  load(f.cuDeviceGetCount, "cuDeviceGetCount");
  load(f.cuDeviceGet, "cuDeviceGet");
  load(f.cuDeviceGetName, "cuDeviceGetName");
  load(f.cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId");
  load(f.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  load(f.cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease_v2");
  load(f.cuCtxGetCurrent, "cuCtxGetCurrent");
  load(f.cuCtxPushCurrent_v2, "cuCtxPushCurrent_v2");
  load(f.cuCtxPopCurrent_v2, "cuCtxPopCurrent_v2");
  load(f.cuCtxGetDevice, "cuCtxGetDevice");
}

void load_memory(Loader& load, Functions& f) {
  load(f.cuMemAlloc_v2, "cuMemAlloc_v2");
  load(f.cuMemFree_v2, "cuMemFree_v2");
  load(f.cuMemHostAlloc, "cuMemHostAlloc");
  load(f.cuMemFreeHost, "cuMemFreeHost");
  load(f.cuMemHostRegister_v2, "cuMemHostRegister_v2");
  load(f.cuMemHostUnregister, "cuMemHostUnregister");
  load(f.cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer_v2");
  load(f.cuPointerGetAttributes, "cuPointerGetAttributes");
  load(f.cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2");
  load(f.cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2");
}

void load_streams(Loader& load, Functions& f) {
  load(f.cuStreamCreate, "cuStreamCreate");
  load(f.cuStreamDestroy_v2, "cuStreamDestroy_v2");
  load(f.cuStreamSynchronize, "cuStreamSynchronize");
  load(f.cuStreamQuery, "cuStreamQuery");
  load(f.cuStreamIsCapturing, "cuStreamIsCapturing");
  load(f.cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo");
  load(f.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  load(f.cuStreamWaitEvent, "cuStreamWaitEvent");
  load(f.cuLaunchHostFunc, "cuLaunchHostFunc");
  load(f.cuStreamWaitValue32_v2, "cuStreamWaitValue32_v2");
  load(f.cuStreamWriteValue32_v2, "cuStreamWriteValue32_v2");
  load(f.cuEventCreate, "cuEventCreate");
  load(f.cuEventDestroy_v2, "cuEventDestroy_v2");
  load(f.cuEventRecord, "cuEventRecord");
  load(f.cuEventQuery, "cuEventQuery");
  load(f.cuEventSynchronize, "cuEventSynchronize");
}

Found not_found(const char* library, const std::string& reason) {
  return {nullptr, fmt::format("no CUDA driver: {}: {}", library, reason)};
}

Result<bool> reached_by(const Driver& driver, Code code, const char* what) {
  if (code == kNotReady) return false;
  TUTTI_TRY(driver.check(code, what));
  return true;
}

}  // namespace

// The library stays open: what it has started cannot be undone.
Found find_in(const char* library) {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const error = dlerror();
    return not_found(library, error != nullptr ? error : "it cannot be opened");
  }
  Functions functions;
  Loader load(opened);
  load_devices(load, functions);
  load_memory(load, functions);
  load_streams(load, functions);
  if (!load.missing().empty())
    return not_found(library, "it is too old: it has no " + load.missing());
  auto driver = std::make_unique<const Driver>(functions);
  if (const Status started = driver->check(functions.cuInit(0), "cuInit"); !started.ok())
    return not_found(library, started.message());
  const Result<int> count = driver->device_count();
  if (!count.ok()) return not_found(library, count.status().message());
  if (*count == 0) return not_found(library, "it has no device");
  return {driver.release(), ""};
}

const Found& find() {
  static const Found found = find_in("libcuda.so.1");
  return found;
}

Status Driver::check(Code code, const char* what) const {
  if (code == kSuccess) [[likely]]
    return Status();
  const char* name = nullptr;
  const char* text = nullptr;
  f_.cuGetErrorName(code, &name);
  f_.cuGetErrorString(code, &text);
  const bool capture = code == kCaptureUnsupported || code == kNotSupported;
  return Status(
      capture ? StatusCode::unsupported : StatusCode::system_error,
      fmt::format("{}: {} ({})", what, name != nullptr ? name : fmt::format("CUDA error {}", code),
                  text != nullptr ? text : "the driver has no text for it"));
}

int Driver::version() const {
  int version = 0;
  return f_.cuDriverGetVersion(&version) == kSuccess ? version : 0;
}

Result<int> Driver::device_count() const {
  int count = 0;
  TUTTI_TRY(check(f_.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  return count;
}

Result<Device> Driver::device(int ordinal) const {
  Device device = 0;
  TUTTI_TRY(check(f_.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  return device;
}

Result<std::string> Driver::device_name(Device device) const {
  std::array<char, 256> name{};
  TUTTI_TRY(check(f_.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device),
                  "cuDeviceGetName"));
  return std::string(name.data());
}

Result<std::string> Driver::device_pci_bus_id(Device device) const {
  std::array<char, 64> id{};
  TUTTI_TRY(check(f_.cuDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()) - 1, device),
                  "cuDeviceGetPCIBusId"));
  return std::string(id.data());
}

Result<Context> Driver::retain_primary(Device device) const {
  Context context = nullptr;
  TUTTI_TRY(check(f_.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain"));
  return context;
}

Status Driver::release_primary(Device device) const {
  return check(f_.cuDevicePrimaryCtxRelease_v2(device), "cuDevicePrimaryCtxRelease");
}

Result<Context> Driver::current() const {
  Context context = nullptr;
  TUTTI_TRY(check(f_.cuCtxGetCurrent(&context), "cuCtxGetCurrent"));
  return context;
}

Result<Device> Driver::current_device() const {
  Device device = 0;
  TUTTI_TRY(check(f_.cuCtxGetDevice(&device), "cuCtxGetDevice"));
  return device;
}

Result<void*> Driver::allocate(std::size_t bytes) const {
  DevicePointer memory = 0;
  TUTTI_TRY(check(f_.cuMemAlloc_v2(&memory, bytes), "cuMemAlloc"));
  return as_memory(memory);
}

Status Driver::deallocate(void* memory) const {
  return check(f_.cuMemFree_v2(as_device(memory)), "cuMemFree");
}

// Asked for all at once, the driver answers for memory that it does not know, too: with zeros.
Result<PointerPlace> Driver::place_of(const void* memory) const {
  Context context = nullptr;
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  std::array<int, 4> names{kPointerContext, kPointerMemoryType, kPointerIsManaged,
                           kPointerDeviceOrdinal};
  std::array<void*, 4> values{&context, &type, &managed, &ordinal};
  const Code code = f_.cuPointerGetAttributes(4, names.data(), values.data(), as_device(memory));
  if (code == kInvalidValue) return PointerPlace();
  TUTTI_TRY(check(code, "cuPointerGetAttributes"));
  if (type == 0) return PointerPlace();
  return PointerPlace{type == kMemoryTypeDevice || managed != 0, ordinal, context};
}

Status Driver::copy_to_host(void* to, const void* from, std::size_t bytes, Stream stream) const {
  return check(f_.cuMemcpyDtoHAsync_v2(to, as_device(from), bytes, stream), "cuMemcpyDtoHAsync");
}

Status Driver::copy_to_device(void* to, const void* from, std::size_t bytes, Stream stream) const {
  return check(f_.cuMemcpyHtoDAsync_v2(as_device(to), from, bytes, stream), "cuMemcpyHtoDAsync");
}

Status Driver::call_host(Stream stream, HostFunction function, void* argument) const {
  return check(f_.cuLaunchHostFunc(stream, function, argument), "cuLaunchHostFunc");
}

Result<DevicePointer> Driver::seen_by_device(const void* host) const {
  DevicePointer device = 0;
  TUTTI_TRY(check(f_.cuMemHostGetDevicePointer_v2(&device, const_cast<void*>(host), 0),
                  "cuMemHostGetDevicePointer"));
  return device;
}

Status Driver::wait_value(Stream stream, const std::uint32_t* word, std::uint32_t value) const {
  const Result<DevicePointer> at = seen_by_device(word);
  TUTTI_TRY(at);
  return check(f_.cuStreamWaitValue32_v2(stream, *at, value, kWaitValueEqual),
               "cuStreamWaitValue32");
}

Status Driver::write_value(Stream stream, std::uint32_t* word, std::uint32_t value) const {
  const Result<DevicePointer> at = seen_by_device(word);
  TUTTI_TRY(at);
  return check(f_.cuStreamWriteValue32_v2(stream, *at, value, kWriteValueDefault),
               "cuStreamWriteValue32");
}

Status Driver::synchronize(Stream stream) const {
  return check(f_.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

Result<bool> Driver::reached(Stream stream) const {
  return reached_by(*this, f_.cuStreamQuery(stream), "cuStreamQuery");
}

Result<Capture> Driver::capture_of(Stream stream) const {
  int status = kCaptureStatusNone;
  std::uint64_t id = 0;
  TUTTI_TRY(check(f_.cuStreamGetCaptureInfo(stream, &status, &id), "cuStreamGetCaptureInfo"));
  if (status == kCaptureStatusInvalidated)
    return check(kCaptureInvalidated, "the stream's capture has failed before");
  if (status != kCaptureStatusActive) return Capture();
  return Capture{true, id};
}

Status Driver::record(Event event, Stream stream) const {
  return check(f_.cuEventRecord(event, stream), "cuEventRecord");
}

Status Driver::wait_event(Stream stream, Event event) const {
  return check(f_.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

Status Driver::synchronize(Event event) const {
  return check(f_.cuEventSynchronize(event), "cuEventSynchronize");
}

Result<bool> Driver::reached(Event event) const {
  return reached_by(*this, f_.cuEventQuery(event), "cuEventQuery");
}

Result<ContextScope> ContextScope::enter(const Driver& driver, Context context) {
  TUTTI_TRY(driver.check(driver.functions().cuCtxPushCurrent_v2(context), "cuCtxPushCurrent"));
  return ContextScope(driver);
}

ContextScope::~ContextScope() {
  Context popped = nullptr;
  if (driver_ != nullptr) driver_->functions().cuCtxPopCurrent_v2(&popped);
}

RelaxedCapture::RelaxedCapture(const Driver& driver) : driver_(driver) {
  changed_ = driver_.functions().cuThreadExchangeStreamCaptureMode(&mode_) == kSuccess;
}

RelaxedCapture::~RelaxedCapture() {
  if (changed_) driver_.functions().cuThreadExchangeStreamCaptureMode(&mode_);
}

Result<PinnedMemory> PinnedMemory::allocate(const Driver& driver, std::size_t bytes) {
  void* memory = nullptr;
  TUTTI_TRY(driver.check(
      driver.functions().cuMemHostAlloc(&memory, bytes, kHostAllocPortable | kHostAllocDeviceMap),
      "cuMemHostAlloc"));
  PinnedMemory made;
  made.driver_ = &driver;
  made.data_ = static_cast<std::byte*>(memory);
  made.bytes_ = bytes;
  made.own_ = true;
  return made;
}

Result<PinnedMemory> PinnedMemory::pin(const Driver& driver, void* memory, std::size_t bytes) {
  TUTTI_TRY(driver.check(driver.functions().cuMemHostRegister_v2(
                             memory, bytes, kHostRegisterPortable | kHostRegisterDeviceMap),
                         "cuMemHostRegister"));
  PinnedMemory made;
  made.driver_ = &driver;
  made.data_ = static_cast<std::byte*>(memory);
  made.bytes_ = bytes;
  return made;
}

PinnedMemory::~PinnedMemory() {
  if (data_ == nullptr) return;
  const Functions& f = driver_->functions();
  static_cast<void>(own_ ? f.cuMemFreeHost(data_) : f.cuMemHostUnregister(data_));
}

Result<OwnStream> OwnStream::make(const Driver& driver) {
  Stream stream = nullptr;
  TUTTI_TRY(driver.check(driver.functions().cuStreamCreate(&stream, kStreamNonBlocking),
                         "cuStreamCreate"));
  return OwnStream(driver, stream);
}

OwnStream::~OwnStream() {
  if (stream_ != nullptr) driver_->functions().cuStreamDestroy_v2(stream_);
}

Result<OwnEvent> OwnEvent::make(const Driver& driver) {
  Event event = nullptr;
  TUTTI_TRY(driver.check(
      driver.functions().cuEventCreate(&event, kEventDisableTiming | kEventBlockingSync),
      "cuEventCreate"));
  return OwnEvent(driver, event);
}

OwnEvent::~OwnEvent() {
  if (event_ != nullptr) driver_->functions().cuEventDestroy_v2(event_);
}

}  // namespace tutti::transport::cuda
