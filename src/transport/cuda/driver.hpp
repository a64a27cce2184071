// driver.hpp: the CUDA driver, found when the program runs: what it can do for us, with its errors
// as Status, and owners for what it hands out.
//
// Needs neither the toolkit nor a driver to be built. Does not know collectives or NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "transport/cuda/types.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::cuda {

// What the driver knows of an address.
struct PointerPlace {
  bool device = false;        // in a device's memory, or managed by the driver
  int ordinal = -1;           // of the device; -1: the driver does not know this memory
  Context context = nullptr;  // null also for memory that belongs to no single context
};

struct Capture {
  bool active = false;
  std::uint64_t id = 0;  // of the capture, the same for all streams that take part
};

// The driver's functions. Errors of all: system_error with the driver's own name for it, unless
// said otherwise.
//
// Threading  any thread.
// Lifetime   the process's.
class Driver {
 public:
  explicit Driver(const Functions& functions) : f_(functions) {}

  // Ok, or the driver's error with what we were about.
  Status check(Code code, const char* what) const;

  const Functions& functions() const { return f_; }

  int version() const;  // 13000: of CUDA 13.0
  Result<int> device_count() const;
  Result<Device> device(int ordinal) const;
  Result<std::string> device_name(Device device) const;
  Result<std::string> device_pci_bus_id(Device device) const;

  Result<Context> retain_primary(Device device) const;  // once for each release_primary()
  Status release_primary(Device device) const;
  Result<Context> current() const;  // null: none
  Result<Device> current_device() const;

  // Memory of the current context's device.
  Result<void*> allocate(std::size_t bytes) const;
  Status deallocate(void* memory) const;
  // Memory that the driver does not know is the host's.
  Result<PointerPlace> place_of(const void* memory) const;

  // Enqueued; the host's memory must be page-locked for them to return at once.
  Status copy_to_host(void* to, const void* from, std::size_t bytes, Stream stream) const;
  Status copy_to_device(void* to, const void* from, std::size_t bytes, Stream stream) const;
  // Enqueued: `function`, on a thread of the driver, where it may not call the driver.
  Status call_host(Stream stream, HostFunction function, void* argument) const;
  // Enqueued: until the word is `value`, and the word becomes `value`. Requires page-locked memory.
  Status wait_value(Stream stream, const std::uint32_t* word, std::uint32_t value) const;
  Status write_value(Stream stream, std::uint32_t* word, std::uint32_t value) const;

  Status synchronize(Stream stream) const;          // blocking
  Result<bool> reached(Stream stream) const;        // false: it still has something to do
  Result<Capture> capture_of(Stream stream) const;  // Errors: also a capture that has failed
  Status record(Event event, Stream stream) const;
  Status wait_event(Stream stream, Event event) const;  // enqueued
  Status synchronize(Event event) const;                // blocking
  Result<bool> reached(Event event) const;

 private:
  Result<DevicePointer> seen_by_device(const void* host) const;

  Functions f_;
};

// A driver, or the reason why there is none.
struct Found {
  const Driver* driver = nullptr;
  std::string reason;
};

// The driver of this machine, started. Null when no library, function or device is there.
// Cost  the first call starts the driver, which may take some hundred milliseconds.
const Found& find();

// The same from a library of this name; what it found stays for the process's life.
Found find_in(const char* library);

// Makes a context the thread's current one, until the end of a block.
class ContextScope {
 public:
  static Result<ContextScope> enter(const Driver& driver, Context context);
  ContextScope(ContextScope&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)) {}
  ContextScope& operator=(ContextScope&&) = delete;
  ~ContextScope();

 private:
  explicit ContextScope(const Driver& driver) : driver_(&driver) {}
  const Driver* driver_;
};

// Lets this thread make what is no part of a capture, memory above all, while streams are being
// captured, until the end of a block.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver);
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture();

 private:
  const Driver& driver_;
  int mode_ = kCaptureModeRelaxed;  // of before
  bool changed_ = false;
};

// Page-locked memory of the host: the driver's own, or a caller's that is locked meanwhile. Every
// context can use it. Movable.
//
// Lifetime  until nothing enqueued uses it. To let go of it may wait for all of a device's work.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static Result<PinnedMemory> allocate(const Driver& driver, std::size_t bytes);
  // Requires  memory that outlives the object.
  static Result<PinnedMemory> pin(const Driver& driver, void* memory, std::size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    PinnedMemory old(std::move(*this));
    swap(other);
    return *this;
  }
  ~PinnedMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(PinnedMemory& other) {
    std::swap(driver_, other.driver_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(own_, other.own_);
  }

  const Driver* driver_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool own_ = false;  // the driver's
};

// A stream of the current context that does not wait for the default one. Movable.
class OwnStream {
 public:
  static Result<OwnStream> make(const Driver& driver);
  OwnStream(OwnStream&& other) noexcept
      : driver_(other.driver_), stream_(std::exchange(other.stream_, nullptr)) {}
  OwnStream& operator=(OwnStream&&) = delete;
  ~OwnStream();

  Stream get() const { return stream_; }

 private:
  OwnStream(const Driver& driver, Stream stream) : driver_(&driver), stream_(stream) {}
  const Driver* driver_;
  Stream stream_;
};

// A point in a stream, without a time. Of the current context. Movable.
class OwnEvent {
 public:
  static Result<OwnEvent> make(const Driver& driver);
  OwnEvent(OwnEvent&& other) noexcept
      : driver_(other.driver_), event_(std::exchange(other.event_, nullptr)) {}
  OwnEvent& operator=(OwnEvent&&) = delete;
  ~OwnEvent();

  Event get() const { return event_; }

 private:
  OwnEvent(const Driver& driver, Event event) : driver_(&driver), event_(event) {}
  const Driver* driver_;
  Event event_;
};

}  // namespace tutti::transport::cuda
