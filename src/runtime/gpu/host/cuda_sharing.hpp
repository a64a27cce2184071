// cuda_sharing.hpp: what memory of a GPU others reach by the CUDA driver: kernels of other devices
// of this process, and other processes of the host, as a whole (CUDA IPC) or part by part.
//
// Knows nothing of streams, launches or peers.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "runtime/gpu/host/device.hpp"
#include "transport/cuda/launch.hpp"
#include "transport/cuda/mapping.hpp"

namespace tutti::runtime::gpu {

// Of one device. Requires  of all: the device's context is current.
//
// Threading  any thread. Errors  as device.hpp has them for functions of these names.
class CudaSharing {
 public:
  CudaSharing(const transport::cuda::Driver& driver, const transport::cuda::LaunchFunctions& launch,
              int ordinal)
      : driver_(driver), launch_(launch), ordinal_(ordinal) {}

  // `name`: of the device, for people. Once, before anything else.
  void start(transport::cuda::Device device, const std::string& name);

  // Kernels of this other device reach what reachable memory there is.
  void note_reached_by(int ordinal);
  bool is_reachable(const void* memory, std::size_t bytes) const;

  Result<SharedMemory> share_memory(const std::byte* memory, std::size_t bytes) const;
  Result<std::unique_ptr<ForeignParts>> reserve_parts(std::size_t bytes) const;
  Result<MemoryHandle> export_memory(const std::byte* memory) const;
  Result<std::byte*> import_memory(const MemoryHandle& handle) const;
  void forget_memory(std::byte* imported) const;

 private:
  transport::cuda::MappingDriver mapping() const { return {&driver_, &*mapping_}; }
  bool is_own(const void* memory) const;
  bool has_handle(const void* memory) const;
  Result<Allocation> allocation_of(const void* memory) const;

  const transport::cuda::Driver& driver_;
  const transport::cuda::LaunchFunctions& launch_;
  const int ordinal_;
  std::string name_;
  std::optional<transport::cuda::MappingFunctions> mapping_;
  std::string why_no_mapping_;  // where there is none

  mutable std::mutex mutex_;  // of what stands below
  std::set<int> reached_by_;
};

}  // namespace tutti::runtime::gpu
