// cuda_parts.hpp: memory of a GPU that was made by cuMemCreate and mapped part by part, for other
// processes, by the CUDA driver: as descriptors or as handles of a fabric.
//
// Knows nothing of peers or of how keys get to them.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "runtime/gpu/host/device.hpp"
#include "transport/cuda/mapping.hpp"

namespace tutti::runtime::gpu {

// The parts that these bytes are in, of the device of that ordinal.
// Errors  unsupported: other processes cannot have them, and why.
Result<SharedMemory> share_cuda_parts(const transport::cuda::MappingDriver& driver, int ordinal,
                                      const std::byte* memory, std::size_t bytes);

// Room for other processes' parts, for kernels of the device of that ordinal.
// Errors  unsupported: the driver has none.
Result<std::unique_ptr<ForeignParts>> reserve_cuda_parts(
    const transport::cuda::MappingDriver& driver, int ordinal, const std::string& device_name,
    std::size_t bytes);

// Whether these bytes were mapped part by part, and so that all of these devices load and store
// them.
bool are_parts_open_to(const transport::cuda::MappingDriver& driver, const std::byte* memory,
                       std::size_t bytes, const std::set<int>& ordinals);

}  // namespace tutti::runtime::gpu
