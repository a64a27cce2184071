// gpu_direct.cc: see gpu_direct.hpp.
#include "nccl/gpu_direct.hpp"

#include <filesystem>
#include <system_error>

namespace tutti::nccl {

bool has_rdma_card(const std::string& root) {
  std::error_code error;
  const std::filesystem::directory_iterator cards(root + "/sys/class/infiniband", error);
  return !error && cards != std::filesystem::directory_iterator();
}

runtime::gpu::NetworkWishes network_wishes(base::GpuDirectChoice wanted,
                                           base::GpuDirectChoice allowed, bool has_card) {
  using Choice = base::GpuDirectChoice;
  const bool says = wanted != Choice::automatic;
  const Choice choice = says ? wanted : allowed;
  std::string why = choice == Choice::off ? "NCCL_NET_GDR_LEVEL=LOC" : "NCCL_NET_GDR_READ=0";
  if (says) why = "TUTTI_GPU_DIRECT=" + std::string(base::to_string(wanted));
  if (choice == Choice::off) return {why, why};
  if (!says && !has_card) {
    const std::string none =
        "this machine has no InfiniBand or RoCE card; TUTTI_GPU_DIRECT=on does not ask for one";
    return {none, none};
  }
  if (choice == Choice::receive) return {why, ""};
  return {};
}

}  // namespace tutti::nccl
