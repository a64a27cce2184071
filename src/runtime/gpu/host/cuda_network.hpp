// cuda_network.hpp: what network cards may do with the memory of a GPU by themselves (GPUDirect
// RDMA), and how what they have written becomes seen by its kernels.
//
// Knows what the driver says of the GPU; does not know which cards there are.
#pragma once

#include <string_view>

#include "runtime/gpu/host/device.hpp"
#include "transport/cuda/launch.hpp"

namespace tutti::runtime::gpu {

NetworkAccess network_access_of(const transport::cuda::LaunchFunctions& launch,
                                transport::cuda::Device device, std::string_view name);

// Requires  the device's context is current, and cards may write.
transport::cuda::Code flush_network_writes_of(const transport::cuda::LaunchFunctions& launch,
                                              transport::cuda::Device device);

}  // namespace tutti::runtime::gpu
