// device_side.hpp: what a communicator has to do with a GPU: the context of the device that was
// current when it was made, or else when it was first needed; the group whose kernels make its
// calls in device memory, where there is one; and the worker that makes all others on streams.
//
// A program that never came near CUDA pays nothing: without the driver's library in the process
// there is no device memory that could be asked about.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "nccl/call.hpp"
#include "nccl/device_group.hpp"
#include "nccl/stream_worker.hpp"
#include "transport/cuda/driver.hpp"

namespace tutti::nccl {

class Comm;

struct DevicePlace {
  int ordinal = 0;
  transport::cuda::Context context = nullptr;  // null: the program has not chosen a device
};

// The device of this thread. Ordinal 0 and no context where there is none.
DevicePlace current_device();

// The same for a device by its number; its primary context, retained for the process's life.
// Errors  invalid_argument: there is a driver, and it has no such device.
Result<DevicePlace> device_of(int ordinal);

// The driver, if this process has loaded it by now; null: no memory here can be a device's.
// Cost  a few nanoseconds, unless libraries have been loaded since it was asked last.
const transport::cuda::Driver* loaded_driver();

class DeviceSide {
 public:
  explicit DeviceSide(DevicePlace place) : place_(place) {}

  int ordinal() const { return place_.ordinal; }

  // Whose kernels make calls; null: no kernels do. Before the communicator is ready.
  void join(std::shared_ptr<DeviceGroup> group) { group_ = std::move(group); }

  // No call can be about a device's memory unless it names a stream.
  bool is_none() const { return loaded_driver() == nullptr; }

  // Calls that are on their way to a stream.
  struct Enqueuing {
    void* stream = nullptr;
    std::vector<Call> calls;
    std::size_t next = 0;      // of them
    bool has_come = false;     // to the meeting in the next one
    std::vector<Call> staged;  // to be launched together
    std::vector<Call> staged_transfers;
    std::vector<Call> transfers;  // for one kernel

    // How far it is.
    std::pair<std::size_t, bool> place() const { return {next, has_come}; }
  };

  // None when the calls are in host memory and no stream was given: then they are the caller's to
  // make, and it is their turn. Blocking, errors  as enqueue().
  Result<std::optional<Enqueuing>> begin(Comm& comm, void* stream, std::vector<Call> calls);
  // Puts calls on the stream as far as it can: true when all are there. False: in a call that copy
  // engines are to make, other ranks are awaited; unless it may wait for them.
  Result<bool> advance(Comm& comm, Enqueuing& enqueuing, bool may_wait);
  // Of one that has not got there: the other ranks do not count on it any more.
  void give_up(const Comm& comm, const Enqueuing& enqueuing);

  // True when the calls are on the stream now, which goes on when they are done; false when they
  // are in host memory and no stream was given: then they are the caller's to make, and it is their
  // turn. Collectives are made in their order, transfers between two ranks after them; those that
  // are staged before the others.
  // Blocking  in the latter case, until those are made that were enqueued before; and for ranks
  // that
  //           are to meet in a call.
  // Errors  unsupported: a stream where there is no driver; those of the driver.
  Result<bool> enqueue(Comm& comm, void* stream, std::vector<Call> calls);

  // Memory of the rank's device that calls will use; the same as the group's, and nothing without
  // one. Requires  the communicator is ready.
  std::uint64_t register_memory(Rank rank, const void* memory, std::size_t bytes) {
    return group_ ? group_->register_memory(rank, memory, bytes) : 0;
  }
  Status deregister_memory(Rank rank, std::uint64_t registration) {
    return group_ && registration != 0 ? group_->deregister_memory(rank, registration) : Status();
  }

  // How the calls went that kernels have made by now. The first time that it is a failure it
  // becomes the last error of the process, as that of a call which is staged does.
  Status kernel_failure(Rank rank) const;
  // Ends those that kernels make or are to make. Threading: any thread.
  void abort_kernels(Rank rank) {
    if (group_) group_->abort(rank);
  }
  // Of this rank, for its kernels. Units: bytes.
  std::size_t memory_bytes() const { return group_ ? group_->memory_bytes() : 0; }

  // Waits for what is on streams, and ends the worker. Blocking.
  void finish(Rank rank);
  // Ends it without waiting.
  void abandon();

 private:
  Status make_worker(Comm& comm);
  Result<bool> is_for_kernels(const Comm& comm, const Call& call) const;
  Status wait_for_earlier(Comm& comm, std::unique_lock<std::mutex>& lock);
  Result<bool> meet(Comm& comm, Enqueuing& enqueuing, bool may_wait, bool& copied);
  Status launch_or_stage(Comm& comm, Enqueuing& enqueuing);
  Status launch_staged(Comm& comm, void* stream, std::vector<Call>& calls);

  std::shared_ptr<DeviceGroup> group_;  // as it is once the communicator is ready
  mutable std::atomic<bool> is_told_{false};
  std::mutex mutex_;  // guards what follows
  DevicePlace place_;
  std::unique_ptr<StreamWorker> worker_;
};

}  // namespace tutti::nccl
