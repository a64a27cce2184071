// device_side.cc: see device_side.hpp.
#include "nccl/device_side.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/abi.hpp"
#include "nccl/comm.hpp"
#include "nccl/memory_kind.hpp"

namespace tutti::nccl {

namespace cuda = transport::cuda;

namespace {

constexpr const char* kOnStream = "a call on a stream";

// How many libraries this process has loaded so far.
unsigned long long libraries_loaded() {
  unsigned long long count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* loaded) {
        *static_cast<unsigned long long*>(loaded) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

bool in_host_memory(std::span<const Call> calls, Rank rank, int size) {
  const cuda::Driver* const driver = loaded_driver();
  const auto host = [&](const void* memory, std::size_t bytes) {
    if (bytes == 0) return true;
    const auto kind = memory_kind_of(driver, memory);
    return kind.ok() && !kind->device;
  };
  return std::all_of(calls.begin(), calls.end(), [&](const Call& call) {
    const Footprint bytes = footprint_of(call, rank, size);
    return host(call.input, bytes.input_bytes) && host(call.output, bytes.output_bytes) &&
           host(call.factor_at, factor_bytes_of(call));
  });
}

// Of a call that had been enqueued. A refusal leaves a communicator as it was because the caller is
// told; this one's was told that all is well, so that it becomes the communicator's failure.
void tell(Comm& comm, const Status& why) {
  if (why.code() == StatusCode::invalid_argument || why.code() == StatusCode::unsupported)
    static_cast<void>(comm.note(Status(StatusCode::mismatch, why.message(), why.culprit())));
  report(kOnStream, why);
}

}  // namespace

const cuda::Driver* loaded_driver() {
  // To look takes the loader some ten microseconds.
  static std::atomic<unsigned long long> looked_among{0};
  static std::atomic<const cuda::Driver*> found{nullptr};
  if (const cuda::Driver* const driver = found.load(std::memory_order_acquire)) return driver;
  const unsigned long long loaded = libraries_loaded();
  if (looked_among.load(std::memory_order_relaxed) == loaded) return nullptr;
  // Who has a device pointer or a stream has loaded it, under this name.
  if (void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    ::dlclose(library);
    found.store(cuda::find().driver, std::memory_order_release);
  }
  looked_among.store(loaded, std::memory_order_relaxed);
  return found.load(std::memory_order_acquire);
}

DevicePlace current_device() {
  const cuda::Driver* const driver = loaded_driver();
  if (driver == nullptr) return {};
  const auto context = driver->current();
  if (!context.ok() || *context == nullptr) return {};
  const auto device = driver->current_device();
  return {device.ok() ? *device : 0, *context};
}

Result<DevicePlace> device_of(int ordinal) {
  const cuda::Driver* const driver = loaded_driver();
  if (driver == nullptr) return DevicePlace{ordinal, nullptr};
  const auto device = driver->device(ordinal);
  if (!device.ok())
    return Status(StatusCode::invalid_argument,
                  fmt::format("device {}: {}", ordinal, device.status().message()));
  const auto context = driver->retain_primary(*device);
  TUTTI_TRY(context);
  return DevicePlace{ordinal, *context};
}

Status DeviceSide::make_worker(Comm& comm) {
  const cuda::Found& found = cuda::find();
  if (found.driver == nullptr)
    return Status(StatusCode::unsupported,
                  fmt::format("a CUDA stream was given, and there is no CUDA driver ({}); calls in "
                              "host memory take a null stream",
                              found.reason));
  if (place_.context == nullptr) place_ = current_device();
  if (place_.context == nullptr) {
    // As for CUDA's runtime: who has chosen none works with the first.
    const Result<DevicePlace> first = device_of(0);
    TUTTI_TRY(first);
    place_ = *first;
  }
  auto made = StreamWorker::make(
      *found.driver, place_.context, comm.rank(), comm.size(),
      [&comm](std::span<const Call> calls) {
        const std::lock_guard lock(comm.in_use());
        return comm.run(calls);
      },
      [&comm](const Status& why) { tell(comm, why); });
  TUTTI_TRY(made);
  worker_ = *std::move(made);
  return Status();
}

Result<bool> DeviceSide::is_for_kernels(const Comm& comm, const Call& call) const {
  if (!group_ || !group_->takes(call)) return false;
  return is_in_device_memory(*loaded_driver(), call, comm.rank(), comm.size(), place_.ordinal);
}

Status DeviceSide::launch_staged(Comm& comm, void* stream, std::vector<Call>& calls) {
  if (calls.empty()) return Status();
  if (!worker_)
    TUTTI_TRY(make_worker(comm).with_context(
        fmt::format("rank {}: {}", comm.rank(), to_string(calls.front().kind))));
  TUTTI_TRY(worker_->launch(stream, calls));
  calls.clear();
  return Status();
}

// Copy engines are asked for, and the ranks come to find out whether they can make the call.
Result<bool> DeviceSide::meet(Comm& comm, Enqueuing& enqueuing, bool may_wait, bool& copied) {
  const Call& call = enqueuing.calls[enqueuing.next];
  if (!enqueuing.has_come) {
    TUTTI_TRY(group_->come(comm.rank(), call, enqueuing.stream));
    enqueuing.has_come = true;
  }
  const auto met = group_->met(comm.rank(), may_wait);
  if (!met) return false;
  enqueuing.has_come = false;
  if (!met->ok()) return comm.note(met->status());
  copied = **met;
  return true;
}

Status DeviceSide::launch_or_stage(Comm& comm, Enqueuing& enqueuing) {
  const Call& call = enqueuing.calls[enqueuing.next];
  const auto launched = group_->launch(comm.rank(), call, enqueuing.stream);
  TUTTI_TRY(launched);
  if (!*launched) enqueuing.staged.push_back(call);
  return Status();
}

// Ranks may group what they call in different ways, but collectives come in the same order on all:
// none may get before another that is to be staged. Transfers have no place in that order; they are
// one launch at its end, because any of them may wait for any other one at some third rank.
Result<bool> DeviceSide::advance(Comm& comm, Enqueuing& enqueuing, bool may_wait) {
  const std::lock_guard lock(mutex_);
  for (; enqueuing.next < enqueuing.calls.size(); ++enqueuing.next) {
    const Call& call = enqueuing.calls[enqueuing.next];
    const auto for_kernels = is_for_kernels(comm, call);
    TUTTI_TRY(for_kernels);
    if (call.kind == CallKind::send || call.kind == CallKind::recv) {
      (*for_kernels ? enqueuing.transfers : enqueuing.staged_transfers).push_back(call);
      continue;
    }
    if (!*for_kernels) {
      enqueuing.staged.push_back(call);
      continue;
    }
    TUTTI_TRY(launch_staged(comm, enqueuing.stream, enqueuing.staged));
    bool copied = false;
    if (group_->meets(call)) {
      const auto met = meet(comm, enqueuing, may_wait, copied);
      TUTTI_TRY(met);
      if (!*met) return false;
    }
    if (!copied) TUTTI_TRY(launch_or_stage(comm, enqueuing));
  }
  std::vector<Call>& rest = enqueuing.staged;
  const std::vector<Call>& staged = enqueuing.staged_transfers;
  rest.insert(rest.end(), staged.begin(), staged.end());
  TUTTI_TRY(launch_staged(comm, enqueuing.stream, rest));
  if (!enqueuing.transfers.empty())
    TUTTI_TRY(group_->launch_transfers(comm.rank(), enqueuing.transfers, enqueuing.stream));
  return true;
}

void DeviceSide::give_up(const Comm& comm, const Enqueuing& enqueuing) {
  if (enqueuing.has_come) group_->withdraw(comm.rank());
}

// Without the lock, so that an abort can end the wait.
Status DeviceSide::wait_for_earlier(Comm& comm, std::unique_lock<std::mutex>& lock) {
  std::function<void()> wait_for_worker;
  if (worker_) {
    auto wait = worker_->wait_for_launches();
    TUTTI_TRY(wait);
    wait_for_worker = *std::move(wait);
  }
  lock.unlock();
  if (group_) TUTTI_TRY(comm.note(group_->wait(comm.rank())));
  if (wait_for_worker) wait_for_worker();
  return Status();
}

Result<std::optional<DeviceSide::Enqueuing>> DeviceSide::begin(Comm& comm, void* stream,
                                                               std::vector<Call> calls) {
  if (stream == nullptr && in_host_memory(calls, comm.rank(), comm.size())) {
    std::unique_lock lock(mutex_);
    TUTTI_TRY(wait_for_earlier(comm, lock));
    return std::optional<Enqueuing>();
  }
  Enqueuing begun;
  begun.stream = stream;
  begun.calls = std::move(calls);
  return std::optional<Enqueuing>(std::move(begun));
}

Result<bool> DeviceSide::enqueue(Comm& comm, void* stream, std::vector<Call> calls) {
  auto begun = begin(comm, stream, std::move(calls));
  TUTTI_TRY(begun);
  if (!*begun) return false;
  return advance(comm, **begun, true);
}

Status DeviceSide::kernel_failure(Rank rank) const {
  if (!group_) return Status();
  Status failure = group_->failure(rank);
  if (!failure.ok() && !is_told_.exchange(true)) report(kOnStream, failure);
  return failure;
}

void DeviceSide::finish(Rank rank) {
  if (group_) static_cast<void>(group_->wait(rank));
  const std::lock_guard lock(mutex_);
  worker_.reset();
}

void DeviceSide::abandon() {
  const std::lock_guard lock(mutex_);
  if (worker_) StreamWorker::abandon(std::move(worker_));
}

}  // namespace tutti::nccl
