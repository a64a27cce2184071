// planners.hpp: planners of small machines, and what their tests ask them.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/explain.hpp"
#include "collectives/planner.hpp"
#include "tutti/topology.hpp"

namespace tutti::collectives {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline Planner make(const char* line, int ranks, PlannerOptions options = {}) {
  Topology topology = *parse_synthetic_topology(line);
  std::vector<VertexId> placement = default_placement(topology, ranks);
  return Planner(std::move(topology), std::move(placement), std::move(options));
}

inline PlannerOptions with_direct() {
  PlannerOptions options;
  options.direct_possible = true;
  return options;
}

// On two cores, the first half of the ranks on one of them.
inline Planner neighbours_first(int ranks, PlannerOptions options = with_direct()) {
  Topology topology = *parse_synthetic_topology("2");
  std::vector<VertexId> placement = default_placement(topology, ranks);
  std::sort(placement.begin(), placement.end());
  return Planner(std::move(topology), std::move(placement), std::move(options));
}

inline PlanQuery all_reduce(std::size_t bytes) { return {Collective::all_reduce, bytes / 4}; }

inline const Candidate* find(const Explanation& explanation, std::string_view algorithm) {
  for (const Candidate& candidate : explanation.candidates)
    if (candidate.algorithm == algorithm) return &candidate;
  return nullptr;
}

}  // namespace tutti::collectives
