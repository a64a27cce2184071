// device.hpp: what the host side of device calls asks of a device: memory, streams, launches. A
// seam, so that planning, argument passing, replay and failure are tested where there is no GPU.
//
// Knows nothing of CUDA (cuda_device.hpp does), or of collectives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/gpu/device_exchange.hpp"
#include "runtime/gpu/device_program.hpp"
#include "runtime/gpu/device_world.hpp"
#include "runtime/gpu/host/memory_parts.hpp"
#include "tutti/status.hpp"
#include "tutti/transport.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

// Handles belong to the device that made them. The null stream is the device's default one.
using StreamHandle = void*;
using EventHandle = void*;
using GraphHandle = void*;

// A piece of memory as the driver gave it out; of memory that is mapped part by part, some parts
// that lie side by side.
struct Allocation {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::uint64_t id = 0;  // of no other one, also where it has the address of one that is gone

  friend bool operator==(const Allocation&, const Allocation&) = default;
};

// A device's memory as other processes of the host can have it.
struct SharedMemory {
  Allocation allocation;
  MemoryHandle handle = {};            // of all of it
  std::shared_ptr<SharedParts> parts;  // instead, where it has been mapped part by part
};

// What network cards may do with a device's memory by themselves.
struct NetworkAccess {
  MemoryKind kind = MemoryKind::cuda;  // as which it is lent to a transport
  std::string why_no_reads;            // empty: they may read it
  std::string why_no_writes;           // empty: they may write it
};

// One launch: what the kernel is told, all of it in memory that the device reads.
struct Launch {
  std::optional<DataType> reduces;  // none: the kernel that only moves bytes
  std::uint32_t blocks = 1;
  std::uint32_t threads = 1;
  const DeviceWorld* world = nullptr;
  const ProgramHeader* program = nullptr;
  const DeviceCall* call = nullptr;
  const DeviceExchange* exchange = nullptr;  // instead of those two: the kernel of transfers
};

// One GPU, or what stands for it in tests.
//
// Threading  any thread.
// Errors     system_error with what the device says, unless said otherwise.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual int id() const = 0;            // equal for objects that are the same device
  virtual std::string name() const = 0;  // for people

  // ---- Memory ----

  // Aligned to 256 bytes; not zeroed.
  virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
  // Blocking: may wait for all that the device does.
  virtual void deallocate(std::byte* memory) = 0;
  // Memory of the host that both see at the same address, zeroed.
  virtual Result<std::byte*> allocate_shared(std::size_t bytes) = 0;
  // Blocking: as deallocate().
  virtual void deallocate_shared(std::byte* memory) = 0;
  // Blocking. They wait for no stream and no kernel.
  virtual Status copy_in(void* to, const void* from, std::size_t bytes) = 0;
  virtual Status copy_out(void* to, const void* from, std::size_t bytes) = 0;
  virtual Status zero(void* at, std::size_t bytes) = 0;
  // From here on, kernels of this device can load and store the memory of `peer`.
  // Errors  unsupported: they cannot.
  virtual Status reach(Device& peer) = 0;
  // Whether kernels of devices that reach this one can address so many bytes from there on.
  virtual bool is_reachable(const void* memory, std::size_t bytes) const = 0;

  // What these bytes are a part of, whoever asked the driver for it.
  // Errors  unsupported: other processes cannot have it, and why.
  virtual Result<SharedMemory> share_memory(const std::byte* memory, std::size_t bytes) = 0;
  // Room for parts that another process shares, of so many bytes together.
  // Errors  unsupported: the driver maps none.
  virtual Result<std::unique_ptr<ForeignParts>> reserve_parts(std::size_t bytes) = 0;

  // What another process of this host reaches a piece of memory by. Requires  it begins an
  // allocation, which is not given back while others have it.
  virtual Result<MemoryHandle> export_memory(const std::byte* memory) = 0;
  // The memory of another process's device, for kernels of this device, too.
  // Errors  unsupported: they cannot load and store it, or the driver does not share it.
  virtual Result<std::byte*> import_memory(const MemoryHandle& handle) = 0;
  virtual void forget_memory(std::byte* imported) = 0;

  // Of memory from allocate().
  virtual NetworkAccess network_access() = 0;
  // What cards have written by now is seen by kernels that are told of it afterwards. Blocking, for
  // a moment; waits for no stream and no kernel. Requires  network_access() lets them write.
  virtual Status flush_network_writes() = 0;
  // Does that while this device is the calling thread's current one, as libraries want it that work
  // on its memory. Errors  those of `work`, too.
  virtual Status within(const std::function<Status()>& work) = 0;

  // Blocking: until the device has nothing left to do, whatever stream it is on.
  virtual Status finish() = 0;

  // ---- Kernels ----

  // Blocks of so many threads, of any of the kernels, that are on the device at once when nothing
  // else is.
  virtual Result<int> blocks_at_once(int threads) = 0;
  // Streams whose kernels the device is sure to run beside each other.
  virtual int streams_at_once() const = 0;
  virtual Status launch(const Launch& launch, StreamHandle stream) = 0;

  // ---- Streams ----

  virtual Result<StreamHandle> make_stream() = 0;
  virtual void destroy_stream(StreamHandle stream) = 0;
  virtual Status synchronize(StreamHandle stream) = 0;    // blocking
  virtual Result<bool> reached(StreamHandle stream) = 0;  // nothing is left to do
  virtual Status copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) = 0;

  virtual Result<EventHandle> make_event() = 0;
  virtual void destroy_event(EventHandle event) = 0;
  virtual Status record(EventHandle event, StreamHandle stream) = 0;
  virtual Result<bool> reached_event(EventHandle event) = 0;
  virtual Status wait_event(StreamHandle stream, EventHandle event) = 0;  // enqueued
  virtual Result<double> elapsed_us(EventHandle from, EventHandle to) = 0;

  // ---- Captured graphs ----

  // Which capture the stream takes part in; 0: none. Streams of one graph have the same.
  virtual Result<std::uint64_t> capture_of(StreamHandle stream) = 0;
  virtual Status begin_capture(StreamHandle stream) = 0;
  virtual Result<GraphHandle> end_capture(StreamHandle stream) = 0;
  virtual Status replay(GraphHandle graph, StreamHandle stream) = 0;
  virtual void destroy_graph(GraphHandle graph) = 0;
};

}  // namespace tutti::runtime::gpu
