// device_memory.hpp: memory of a device that callers of ncclMemAlloc get: mapped, as NCCL's is, so
// that all devices of the process which can reach it do, and other processes can map it by a
// descriptor or a fabric's handle. Where driver or device map none, it is cuMemAlloc's.
//
// Does not know who holds it.
#pragma once

#include <cstddef>
#include <utility>

#include "transport/cuda/mapping.hpp"

namespace tutti::nccl {

// Movable. Lifetime  until free(), or the process's.
class DeviceMemory {
 public:
  // Of the device of that ordinal, whose context is current. Aligned to 256 bytes at least.
  // Errors  system_error: no memory is left.
  // Cost    mapped memory takes whole granules, of 2 MiB on most devices.
  static Result<DeviceMemory> make(const transport::cuda::Driver& driver, int ordinal,
                                   transport::cuda::Context context, std::size_t bytes);

  void* data() const { return data_; }
  // Requires  no call uses it any more: mapped memory goes at once, as NCCL's does.
  Status free();

 private:
  const transport::cuda::Driver* driver_ = nullptr;
  transport::cuda::Context context_ = nullptr;
  void* data_ = nullptr;
  transport::cuda::MappedRange range_;  // of nothing: it is cuMemAlloc's
};

}  // namespace tutti::nccl
