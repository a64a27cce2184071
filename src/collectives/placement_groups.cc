// Groups of a placement, found by what of the machine holds the seats.
#include "collectives/placement_groups.hpp"

#include <algorithm>
#include <functional>

namespace tutti::collectives {
namespace {

// Finds what holds a seat; none where nothing of the kind does.
using Holder = std::function<VertexId(VertexId seat)>;

// The node, package or memory domain that it belongs to.
Holder holder(const Topology& topology, VertexKind kind) {
  return [&topology, kind](VertexId seat) {
    VertexId vertex = seat;
    while (vertex != VertexId::none && topology.vertex(vertex).kind != kind)
      vertex = topology.vertex(vertex).parent;
    return vertex;
  };
}

// The seat itself, of which several ranks may share one.
VertexId itself(VertexId seat) { return seat; }

// Ranks per holder when every one holds equally many consecutive ones, else 1.
int ranks_per(const std::vector<VertexId>& placement, const Holder& holder) {
  std::vector<VertexId> holders;
  std::vector<int> sizes;
  for (const VertexId seat : placement) {
    const VertexId found = holder(seat);
    if (found == VertexId::none) return 1;
    if (holders.empty() || holders.back() != found) {
      if (std::find(holders.begin(), holders.end(), found) != holders.end()) return 1;
      holders.push_back(found);
      sizes.push_back(0);
    }
    ++sizes.back();
  }
  const bool equal =
      std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes.front(); });
  return equal && !sizes.empty() ? sizes.front() : 1;
}

}  // namespace

std::vector<GroupSizes> groups_of(const Topology& topology,
                                  const std::vector<VertexId>& placement) {
  const int ranks = static_cast<int>(placement.size());
  const int node = ranks_per(placement, holder(topology, VertexKind::node));
  std::vector<GroupSizes> found = {GroupSizes(node)};
  for (const Holder& part : {holder(topology, VertexKind::package),
                             holder(topology, VertexKind::numa), Holder(itself)}) {
    const int inner = ranks_per(placement, part);
    if (inner < 2 || inner >= node || node % inner != 0) continue;
    GroupSizes groups = node < ranks ? GroupSizes({inner, node / inner}) : GroupSizes(inner);
    if (std::find(found.begin(), found.end(), groups) == found.end())
      found.push_back(std::move(groups));
  }
  // One node: the groups within it are the only ones.
  if (found.size() > 1 && node == ranks) found.erase(found.begin());
  return found;
}

}  // namespace tutti::collectives
