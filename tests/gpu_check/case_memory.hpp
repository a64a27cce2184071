// case_memory.hpp: memory of a GPU for one case of the checks between processes: as cudaMalloc
// gives it, or made by cuMemCreate and mapped in two parts, as allocators do that grow.
#pragma once

#include <cstddef>
#include <utility>

#include "runtime/gpu/host/device.hpp"
#include "transport/cuda/mapping.hpp"

namespace tutti::gpu_check {

// Movable. Lifetime  not longer than the device's.
class CaseMemory {
 public:
  // Errors  the device's; unsupported, of parts: driver or device map none.
  static Result<CaseMemory> make(runtime::gpu::Device& device, std::size_t bytes, bool in_parts);
  CaseMemory(CaseMemory&& other) noexcept
      : device_(other.device_),
        memory_(std::exchange(other.memory_, nullptr)),
        range_(std::move(other.range_)) {}
  CaseMemory& operator=(CaseMemory&&) = delete;
  ~CaseMemory() {
    if (memory_ != nullptr) device_.deallocate(memory_);
  }

  std::byte* data() const { return memory_ != nullptr ? memory_ : range_.begin(); }

 private:
  explicit CaseMemory(runtime::gpu::Device& device) : device_(device) {}

  runtime::gpu::Device& device_;
  std::byte* memory_ = nullptr;
  transport::cuda::MappedRange range_;
};

}  // namespace tutti::gpu_check
