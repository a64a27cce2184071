// cuda_network.cc: see cuda_network.hpp.
#include "runtime/gpu/host/cuda_network.hpp"

#include <fmt/format.h>

namespace tutti::runtime::gpu {
namespace {

namespace cuda = transport::cuda;

// 0 where the driver does not know it.
int attribute(const cuda::LaunchFunctions& launch, int which, cuda::Device device) {
  int value = 0;
  return launch.cuDeviceGetAttribute(&value, which, device) == cuda::kSuccess ? value : 0;
}

// Devices that do not order what cards write for their own kernels have to be flushed: otherwise a
// kernel might read what was there before.
bool needs_flush(const cuda::LaunchFunctions& launch, cuda::Device device) {
  return attribute(launch, cuda::kDeviceRdmaWritesOrdering, device) < cuda::kRdmaOrderedForOwner;
}

bool can_flush(const cuda::LaunchFunctions& launch, cuda::Device device) {
  return launch.cuFlushGPUDirectRDMAWrites != nullptr &&
         (attribute(launch, cuda::kDeviceRdmaFlushOptions, device) & cuda::kRdmaFlushByHost) != 0;
}

}  // namespace

NetworkAccess network_access_of(const cuda::LaunchFunctions& launch, cuda::Device device,
                                std::string_view name) {
  NetworkAccess access;
  if (attribute(launch, cuda::kDeviceRdma, device) == 0)
    access.why_no_reads = access.why_no_writes = fmt::format("{} does no GPUDirect RDMA", name);
  else if (needs_flush(launch, device) && !can_flush(launch, device))
    access.why_no_writes =
        fmt::format("{} neither orders what network cards write nor lets the host flush it", name);
  return access;
}

cuda::Code flush_network_writes_of(const cuda::LaunchFunctions& launch, cuda::Device device) {
  if (!needs_flush(launch, device)) return cuda::kSuccess;
  return launch.cuFlushGPUDirectRDMAWrites(cuda::kRdmaFlushCurrentContext, cuda::kRdmaFlushToOwner);
}

}  // namespace tutti::runtime::gpu
