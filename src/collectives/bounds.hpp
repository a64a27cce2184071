// bounds.hpp: what no schedule can beat on a machine: three lower bounds of the time of a
// collective, each with where it comes from.
//
//   latency  news spreads from rank to rank and nobody is told sooner; by the cost model's
//   overheads links    data must cross every cut of the topology; the worst cut is found exactly,
//   by max flow memory   every contribution is read and every result written at least once
//
// The bound on links of an all-reduce is that of a reduce-scatter followed by an all-gather.
// Schedules that reduce and spread whole buffers cannot do better where ports are the limit.
// Sources: Edmonds (1972) for broadcast; Zhao et al., ForestColl (2024), for all-gather and
// reduce-scatter on any topology.
//
// Knows nothing of algorithms.
#pragma once

#include <string>
#include <vector>

#include "collectives/cost.hpp"

namespace tutti::collectives {

// Times per byte are per byte of one block as the API counts them: of the whole vector for
// all_reduce, broadcast, reduce, send_recv; of one rank's part for the others.
struct Bounds {
  double latency_ns = 0;
  double link_ns_per_byte = 0;
  double memory_ns_per_byte = 0;
  std::string latency_origin;
  std::string link_origin;
  std::string memory_origin;
};

// Errors  invalid_argument when ranks are not connected.
Result<Bounds> find_bounds(Machine& machine, Collective collective, Rank root);

// ---- The parts, for tests ----

// A directed graph whose first vertices hold ranks. Capacities in bytes per ns.
struct FlowGraph {
  struct Arc {
    int from = 0;
    int to = 0;
    double capacity = 0;
  };
  int vertices = 0;
  std::vector<Arc> arcs;
  std::vector<int> ranks_at;  // of each vertex
};

// A set of vertices and what can leave it.
struct Cut {
  std::vector<bool> inside;
  double capacity = 0;
};

// The least cut between two vertices; its capacity is the greatest flow.
Cut min_cut(const FlowGraph& graph, int from, int to);

// The cut that limits an all-gather: of all sets that lack a rank, the one with the most ranks per
// capacity that leaves it. Time per byte of a rank's part: ranks inside / capacity.
// `vertices_tested`: of those with ranks; all when negative. Fewer give a weaker, but valid bound.
Cut all_gather_cut(const FlowGraph& graph, int vertices_tested = -1);

// The same graph with all arcs turned round.
FlowGraph reversed(FlowGraph graph);

}  // namespace tutti::collectives
