// nccl_speeds.hpp: what the names and numbers in NCCL's topology files say about speed. Bandwidths
// are bytes per ns (GB/s) per direction, of one link.
//
// Knows nothing of files or topologies.
#pragma once

#include <string_view>

namespace tutti::topology {

// Between switches that are one device: never what limits.
inline constexpr double kLocalBandwidth = 5000;

// Of an NVLink, by the compute capability times ten; of AMD's, by the name of the architecture or
// its old number.
double nvlink_bandwidth(int sm);
double xgmi_bandwidth(std::string_view gcn);

struct CpuModel {
  std::string_view arch;
  std::string_view vendor;
  int family = 0;
  int model = 0;
};

// Between two processors of a kind.
double cpu_bandwidth(const CpuModel& cpu);

}  // namespace tutti::topology
