// placement.cc: where ranks can sit, and where they sit by default. Knows no rank's program and
// binds nothing; pinning is the launcher's work.

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "topology/numbers.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

std::vector<VertexId> automatic_seats(const Topology& topology) {
  for (const VertexKind kind : {VertexKind::gpu, VertexKind::core, VertexKind::node}) {
    std::vector<VertexId> found = topology.of_kind(kind);
    if (!found.empty()) return found;
  }
  return {};
}

void append_cpus(const Topology& topology, VertexId id, std::vector<int>& cpus) {
  const auto& info = topology.vertex(id).info;
  if (const auto pus = info.find("pus"); pus != info.end())
    for (const std::string_view item : base::split(pus->second, ','))
      if (const auto cpu = topology::parse_number<int>(item)) cpus.push_back(*cpu);
  for (const VertexId child : topology.children_of(id)) append_cpus(topology, child, cpus);
}

}  // namespace

std::vector<VertexId> seats(const Topology& topology, SeatKind kind) {
  std::vector<VertexId> found = kind == SeatKind::gpu    ? topology.of_kind(VertexKind::gpu)
                                : kind == SeatKind::core ? topology.of_kind(VertexKind::core)
                                                         : automatic_seats(topology);
  std::stable_sort(found.begin(), found.end(), [&](VertexId x, VertexId y) {
    return topology.node_of(x) < topology.node_of(y);
  });
  return found;
}

std::vector<VertexId> default_placement(const Topology& topology, int ranks, SeatKind kind) {
  const std::vector<VertexId> all = seats(topology, kind);
  const std::size_t n = ranks < 0 ? 0 : static_cast<std::size_t>(ranks);
  if (all.empty()) return {};
  if (n <= all.size()) return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)};

  std::map<VertexId, std::vector<VertexId>> seats_of_node;
  for (const VertexId seat : all) seats_of_node[topology.node_of(seat)].push_back(seat);
  std::map<VertexId, std::size_t> seated;
  std::vector<VertexId> placement;
  for (std::size_t rank = 0; rank < n; ++rank) {
    const VertexId node = topology.node_of(all[rank * all.size() / n]);
    const std::vector<VertexId>& local = seats_of_node[node];
    placement.push_back(local[seated[node]++ % local.size()]);
  }
  return placement;
}

std::vector<int> cpus_of(const Topology& topology, VertexId id) {
  std::vector<int> cpus;
  append_cpus(topology, id, cpus);
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

}  // namespace tutti
