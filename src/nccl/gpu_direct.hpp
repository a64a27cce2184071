// gpu_direct.hpp: whether network cards are to read and write the memory of GPUs by themselves, as
// far as settings and the machine decide it. What the GPU, UCX and the peers say comes later.
#pragma once

#include <string>

#include "base/config.hpp"
#include "runtime/gpu/host/carrier.hpp"

namespace tutti::nccl {

// Whether the machine has an InfiniBand or RoCE card. `root`: of the file system.
bool has_rdma_card(const std::string& root = "/");

// `wanted`: what Tutti's variable says; `allowed`: what NCCL's do.
runtime::gpu::NetworkWishes network_wishes(base::GpuDirectChoice wanted,
                                           base::GpuDirectChoice allowed, bool has_card);

}  // namespace tutti::nccl
