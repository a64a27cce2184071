// cuda_device.hpp: a GPU by the CUDA driver: memory, streams, graphs and launches of the kernels
// that are embedded in the library.
//
// Needs no toolkit to be built and no driver to be linked. Knows nothing of collectives.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/gpu/host/device.hpp"

namespace tutti::runtime::gpu {

// Device `ordinal` in its primary context. `image`: the kernels, as one module that the driver
// loads.
// Errors  unsupported: there is no driver, no such device, or no kernels for it, with what to do.
// Cost    loads all kernels: at their first launch it would be too late, because that may wait for
//         a kernel which waits for this one.
Result<std::unique_ptr<Device>> make_cuda_device(int ordinal, std::span<const std::byte> image);

}  // namespace tutti::runtime::gpu
