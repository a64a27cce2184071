// device_topology.hpp: the machines of a device world as its planner sees them, and which GPU each
// rank has: what is assumed, or what was described for every host (nccl/topology_file.hpp).
//
// Pure: equal arguments give equal values, so that ranks which agree on those agree on plans.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/topology.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

struct DeviceTopology {
  Topology topology;
  std::vector<VertexId> placement;  // by rank
};

// Every rank on a seat of its own, also where several share a device: they run beside each other
// there, each with its share of the processors and of the memory's bandwidth. `hosts`: by rank,
// equal for those of one host; empty: all are on one.
Result<DeviceTopology> assumed_topology(int ranks, int ranks_per_device,
                                        std::span<const int> hosts);

// Where a rank is: the index of its host's description, and its GPU on PCI Express ("0000:0a:00.0",
// in any case of letters).
struct DevicePlace {
  std::size_t host = 0;
  std::string bus_id;
};

// The hosts side by side. Between them there is nothing but what each host's processor carries,
// whatever NICs are described.
// Errors  unsupported: a GPU is in no description, or is that of two ranks, or GPUs are not
//         connected. The text says whose.
Result<DeviceTopology> described_topology(std::span<const Topology> hosts,
                                          std::span<const DevicePlace> ranks);

}  // namespace tutti::runtime::gpu
