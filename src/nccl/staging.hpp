// staging.hpp: which parts of device memory the calls of one launch read and write, and where each
// of them lies in the host memory in which the calls are made instead.
//
// Parts that overlap on the device overlap in the same way in the host's memory, whichever call or
// side of a call they belong to, so that calls in place stay so. Decides only; copies nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nccl/call.hpp"

namespace tutti::nccl {

// Bytes of device memory, and their place in the host's.
struct StagedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t offset = 0;  // of `begin`, from the beginning of the host memory

  std::size_t bytes() const { return end - begin; }
  void* device() const { return reinterpret_cast<void*>(begin); }  // NOLINT(*-int-to-ptr)
};

struct StagingPlan {
  std::vector<StagedRange> inputs;   // to be copied before the calls; disjoint, ascending
  std::vector<StagedRange> outputs;  // and after them
  std::vector<StagedRange> blocks;   // what both together cover
  std::size_t bytes = 0;             // of host memory that all of it needs
};

// One side of one call in device memory.
struct DeviceUse {
  const void* memory = nullptr;
  std::size_t bytes = 0;  // not 0
};

StagingPlan plan_staging(std::span<const DeviceUse> inputs, std::span<const DeviceUse> outputs);

// Where `memory` lies if the host memory begins at `staged`; null if it is in none of the blocks.
std::byte* staged_place(const StagingPlan& plan, const void* memory, std::byte* staged);

}  // namespace tutti::nccl
