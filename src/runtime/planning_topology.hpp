// planning_topology.hpp: the machine as the planner of a communicator sees it, made from what the
// ranks told each other, so that it is the same on all of them.
#pragma once

#include <vector>

#include "collectives/tuning.hpp"
#include "runtime/host.hpp"
#include "tutti/topology.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime {

// More ranks on the machine of `rank` than hardware threads that they may use together. Containers
// and network namespaces of one machine are no hosts to each other, but they share its cores.
bool ranks_share_cores(const std::vector<HostCard>& cards, Rank rank);

// By rank: those that are bound to the same one processor as `rank`. Empty when nobody is, or when
// `rank` may run on several.
std::vector<bool> neighbours(const std::vector<HostCard>& cards, Rank rank);

// How many hardware threads the ranks on the machine of `rank` run on: one each, while there are
// enough.
int cores_shared(const std::vector<HostCard>& cards, Rank rank);

struct PlanningTopology {
  Topology topology;
  std::vector<VertexId> placement;  // by rank
  // By rank: equal for those that take turns on one core. Empty: those on one seat.
  std::vector<int> cores;
  // All ranks talk through sockets of one machine, and each has a core of it.
  bool one_machine = false;
};

// `through_memory`: ranks of a host move data through memory, else through sockets. Where ranks
// outnumber the cores of their machine, several run on one core and take turns; through memory they
// sit on it together, through sockets each has its own way into the network. `figures`: of the
// transport, where they were measured.
Result<PlanningTopology> planning_topology(const std::vector<HostCard>& cards, bool through_memory,
                                           const collectives::TransportFigures* figures = nullptr);

}  // namespace tutti::runtime
