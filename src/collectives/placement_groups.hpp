// placement_groups.hpp: which ranks lie close together, for algorithms that go by groups of them.
//
// Knows nothing of algorithms or costs.
#pragma once

#include <vector>

#include "collectives/builder.hpp"
#include "tutti/topology.hpp"

namespace tutti::collectives {

// The groups that algorithms of several levels may go by: nodes; and what nodes consist of, alone
// or within nodes. At least one, which may be none.
std::vector<GroupSizes> groups_of(const Topology& topology, const std::vector<VertexId>& placement);

}  // namespace tutti::collectives
