// device_side.cc: see device_side.hpp.
#include "nccl/device_side.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/abi.hpp"
#include "nccl/comm.hpp"
#include "nccl/memory_kind.hpp"

namespace tutti::nccl {

namespace cuda = transport::cuda;

const cuda::Driver* loaded_driver() {
  // Who has a device pointer or a stream has loaded it, under this name.
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  ::dlclose(library);
  return cuda::find().driver;
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

bool DeviceSide::in_host_memory(std::span<const Call> calls, Rank rank, int size) const {
  const cuda::Driver* const driver = cuda::find().driver;
  const auto host = [&](const void* memory, std::size_t bytes) {
    if (bytes == 0) return true;
    const auto kind = memory_kind_of(driver, memory);
    return kind.ok() && !kind->device;
  };
  return std::all_of(calls.begin(), calls.end(), [&](const Call& call) {
    const Footprint bytes = footprint_of(call, rank, size);
    return host(call.input, bytes.input_bytes) && host(call.output, bytes.output_bytes);
  });
}

Status DeviceSide::make_worker(Comm& comm) {
  const cuda::Found& found = cuda::find();
  if (found.driver == nullptr)
    return Status(StatusCode::unsupported,
                  fmt::format("a CUDA stream was given, and there is no CUDA driver ({}); calls in "
                              "host memory take a null stream",
                              found.reason));
  if (place_.context == nullptr) place_ = current_device();
  if (place_.context == nullptr)
    return Status(StatusCode::unsupported,
                  "a CUDA stream was given, and this thread has no device; call cudaSetDevice");
  none_.store(false, std::memory_order_relaxed);
  auto made = StreamWorker::make(
      *found.driver, place_.context, comm.rank(), comm.size(),
      [&comm](std::span<const Call> calls) {
        const std::lock_guard lock(comm.in_use());
        return comm.run(calls);
      },
      [](const Status& why) { report("a call on a stream", why); });
  TUTTI_TRY(made);
  worker_ = *std::move(made);
  return Status();
}

Result<bool> DeviceSide::enqueue(Comm& comm, void* stream, const std::vector<Call>& calls) {
  const std::lock_guard lock(mutex_);
  if (stream == nullptr &&
      (place_.context == nullptr || in_host_memory(calls, comm.rank(), comm.size())))
    return false;
  if (!worker_)
    TUTTI_TRY(make_worker(comm).with_context(
        fmt::format("rank {}: {}", comm.rank(), to_string(calls.front().kind))));
  TUTTI_TRY(worker_->launch(stream, calls));
  return true;
}

void DeviceSide::finish() {
  const std::lock_guard lock(mutex_);
  worker_.reset();
}

void DeviceSide::abandon() {
  const std::lock_guard lock(mutex_);
  if (worker_) StreamWorker::abandon(std::move(worker_));
}

}  // namespace tutti::nccl
