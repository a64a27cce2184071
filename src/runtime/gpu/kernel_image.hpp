// kernel_image.hpp: the compiled GPU kernels (kernels.cu) as libtutti carries them: an image that
// the driver loads as a module, for every generation of GPUs that it was compiled for.
//
// Knows nothing of the driver.
#pragma once

#include <cstddef>
#include <span>

#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

// Empty in a build without nvcc.
std::span<const std::byte> kernel_image();

// The kernel of programs that reduce elements of this type, that of all which only move bytes, and
// that of transfers.
const char* kernel_name(DataType reduced);
const char* byte_kernel_name();
const char* exchange_kernel_name();

// How kernels are launched: one block for each channel, all of them resident at once, of so many
// threads at most; with pointers in the device's memory to the world, the program and the call.
// That of transfers: as many blocks as it is told, with the world and a DeviceExchange.
inline constexpr int kKernelThreadsMax = 512;

}  // namespace tutti::runtime::gpu
