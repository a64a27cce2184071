// host_device.hpp: a device for tests that is NOT a GPU: its memory is the host's, its streams are
// threads, and a launch runs the device's interpreter on threads of the processor. So everything on
// the host's side of device calls runs without a GPU, under sanitizers, too.
//
// As on a GPU: what is enqueued happens later, kernels of different streams run beside each other,
// and to free memory waits for all that the device does; so does to forget a mapping, and meanwhile
// nobody else gets anything copied or launched. It measures nothing that says anything about a
// device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/gpu/host/device.hpp"

namespace tutti::runtime::gpu {

struct HostDeviceOptions {
  int id = 0;
  int blocks = 64;  // that fit at once
  int streams = 32;
  bool reaches_peers = true;
  // As what a GPU's memory is lent; its own is the host's.
  NetworkAccess network{MemoryKind::host, "", ""};
};

struct PartedMemory;  // host_parts.cc

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options = {});
  ~HostDevice() override;

  // ---- What tests ask ----
  int launches() const { return launches_; }
  int copies_in() const { return copies_in_; }
  int allocations() const { return allocations_; }  // made and not given back
  int imports() const { return imports_; }          // the same
  int flushes() const { return flushes_; }          // of what network cards wrote
  Launch last_launch() const;
  // The next allocation that is asked for fails.
  void fail_next_allocation() { fail_allocation_after(0); }
  // The same after so many others.
  void fail_allocation_after(int others) { fails_ = others + 1; }
  void set_reachable(bool reachable) { reachable_ = reachable; }
  // Memory in parts of these sizes side by side, each of whole pages and a file of its own; null:
  // there is none left. `by_handle`: others get it by the file's number and not by a descriptor.
  std::byte* allocate_parts(const std::vector<std::size_t>& bytes, bool by_handle = false);
  void deallocate_parts(std::byte* memory);
  int shared_parts() const { return shared_parts_; }  // objects for others, that are left
  void fail_next_key() { fails_key_ = true; }
  void set_importing(bool importing) { importing_ = importing; }
  // As if this memory had been given back, and had come back at the same address.
  void renew(std::byte* memory);
  // The stream does nothing until `opened` is ready.
  void hold(StreamHandle stream, std::future<void> opened);
  // Done before memory goes. Requires  nobody gives memory back meanwhile.
  void at_deallocation(std::function<void()> look) { look_ = std::move(look); }

  int id() const override { return options_.id; }
  std::string name() const override;
  Result<std::byte*> allocate(std::size_t bytes) override;
  void deallocate(std::byte* memory) override;
  Result<std::byte*> allocate_shared(std::size_t bytes) override;
  void deallocate_shared(std::byte* memory) override;
  Status copy_in(void* to, const void* from, std::size_t bytes) override;
  Status copy_out(void* to, const void* from, std::size_t bytes) override;
  Status zero(void* at, std::size_t bytes) override;
  Status reach(Device& peer) override;
  bool is_reachable(const void* memory, std::size_t bytes) const override;
  Result<SharedMemory> share_memory(const std::byte* memory, std::size_t bytes) override;
  Result<std::unique_ptr<ForeignParts>> reserve_parts(std::size_t bytes) override;
  // What stands for another process in tests has the same addresses. As on a GPU: what has the
  // address of another allocation that is still mapped here is not mapped beside it.
  Result<MemoryHandle> export_memory(const std::byte* memory) override;
  Result<std::byte*> import_memory(const MemoryHandle& handle) override;
  void forget_memory(std::byte* imported) override;
  NetworkAccess network_access() override { return options_.network; }
  Status flush_network_writes() override;
  Status within(const std::function<Status()>& work) override { return work(); }
  Status finish() override;

  Result<int> blocks_at_once(int threads) override;
  int streams_at_once() const override { return options_.streams; }
  Status launch(const Launch& launch, StreamHandle stream) override;

  Result<StreamHandle> make_stream() override;
  void destroy_stream(StreamHandle stream) override;
  Status synchronize(StreamHandle stream) override;
  Result<bool> reached(StreamHandle stream) override;
  Status copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) override;

  Result<EventHandle> make_event() override;
  void destroy_event(EventHandle event) override;
  Status record(EventHandle event, StreamHandle stream) override;
  Result<bool> reached_event(EventHandle event) override;
  Status wait_event(StreamHandle stream, EventHandle event) override;
  Result<double> elapsed_us(EventHandle from, EventHandle to) override;

  Result<std::uint64_t> capture_of(StreamHandle stream) override;
  Status begin_capture(StreamHandle stream) override;
  Result<GraphHandle> end_capture(StreamHandle stream) override;
  Status replay(GraphHandle graph, StreamHandle stream) override;
  void destroy_graph(GraphHandle graph) override;

 private:
  class Stream;
  class OwnParts;
  class Imported;
  struct Event;
  using Operation = std::function<void()>;
  struct Graph {
    std::vector<Operation> operations;
  };

  Stream& stream_of(StreamHandle stream);
  static MemoryHandle handle_of(const Allocation& allocation);
  void wait_for_all();
  void forget(const std::function<void()>& unmap);
  void wait_for_driver() { const std::lock_guard lock(driver_); }

  const HostDeviceOptions options_;
  std::atomic<int> launches_ = 0;
  std::atomic<int> copies_in_ = 0;
  std::atomic<int> allocations_ = 0;
  std::atomic<int> imports_ = 0;
  std::atomic<int> flushes_ = 0;
  std::atomic<int> fails_ = 0;  // so many allocations from now; 0: none does
  std::atomic<bool> reachable_ = true;
  std::atomic<bool> importing_ = true;
  std::atomic<int> shared_parts_ = 0;
  std::atomic<bool> fails_key_ = false;
  std::function<void()> look_;
  std::mutex driver_;         // held by who forgets a mapping
  mutable std::mutex mutex_;  // of what stands below
  Launch last_launch_;
  std::map<const std::byte*, Allocation> made_;  // by where they end
  struct Import {
    std::uint64_t id = 0;
    int times = 0;
  };
  std::map<const std::byte*, Import> imported_;
  std::vector<std::shared_ptr<PartedMemory>> parted_;
  std::uint64_t last_id_ = 0;
  std::vector<std::shared_ptr<Stream>> streams_;  // the first one is the default stream
};

}  // namespace tutti::runtime::gpu
