// nccl_import.hpp: machines as NCCL describes them, in the XML of NCCL_TOPO_FILE and of what
// NCCL_TOPO_DUMP_FILE makes it write: processors, PCI Express, GPUs and their links, NICs.
//
// Speeds are those that the hardware has: NCCL's own model takes less for NVLinks, and a slow
// generation for some speeds that it does not know by name.
#pragma once

#include <string_view>

#include "tutti/topology.hpp"

namespace tutti::topology {

// One node, or as many as there are host_hash values. Safe on any input.
// Errors  corrupt_data, with the number of the line.
Result<Topology> import_nccl(std::string_view xml);

}  // namespace tutti::topology
