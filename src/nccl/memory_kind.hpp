// memory_kind.hpp: where the memory lies that a caller of the NCCL interface gives: in the host's
// memory, or a device's.
//
// Knows the CUDA driver, where there is one. Does not know calls or streams.
#pragma once

#include "transport/cuda/driver.hpp"

namespace tutti::nccl {

struct MemoryKind {
  bool device = false;  // only the device may touch it
  int ordinal = -1;     // of that device
  // Null: host memory, or device memory that belongs to no single context.
  transport::cuda::Context context = nullptr;
};

// Without a driver all memory is the host's, and so is what the driver does not know: null, too.
// Page-locked memory is the host's. Memory that the driver moves to and fro (managed) counts as the
// device's: on some machines the host may not touch it while the device works.
// Errors  the driver's, such as that of a device that has failed.
Result<MemoryKind> memory_kind_of(const transport::cuda::Driver* driver, const void* memory);

}  // namespace tutti::nccl
