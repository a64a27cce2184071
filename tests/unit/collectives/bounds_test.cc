// Lower bounds: max flow against all cuts of small random graphs, and known fabrics.
#include "collectives/bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tutti/topology.hpp"

namespace tutti::collectives {
namespace {

// A graph of up to 9 vertices; some hold ranks, at least two do. Every vertex is on a cycle through
// all of them, so everything is connected.
FlowGraph random_graph(std::mt19937& random) {
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  FlowGraph graph;
  graph.vertices = 3 + below(7);
  for (int v = 0; v < graph.vertices; ++v) {
    graph.ranks_at.push_back(v < 2 ? 1 : below(3));
    graph.arcs.push_back({v, (v + 1) % graph.vertices, 1.0 + below(20)});
  }
  for (int i = below(3 * graph.vertices); i > 0; --i) {
    const int from = below(graph.vertices);
    const int to = below(graph.vertices);
    if (from != to) graph.arcs.push_back({from, to, 1.0 + below(20)});
  }
  return graph;
}

double leaving(const FlowGraph& graph, unsigned inside) {
  double capacity = 0;
  for (const FlowGraph::Arc& arc : graph.arcs)
    if ((inside >> arc.from & 1) != 0 && (inside >> arc.to & 1) == 0) capacity += arc.capacity;
  return capacity;
}

int ranks_in(const FlowGraph& graph, unsigned inside) {
  int ranks = 0;
  for (int v = 0; v < graph.vertices; ++v)
    if ((inside >> v & 1) != 0) ranks += graph.ranks_at[static_cast<std::size_t>(v)];
  return ranks;
}

int ranks_in(const FlowGraph& graph, const Cut& cut) {
  int ranks = 0;
  for (int v = 0; v < graph.vertices; ++v)
    if (cut.inside[static_cast<std::size_t>(v)])
      ranks += graph.ranks_at[static_cast<std::size_t>(v)];
  return ranks;
}

TEST(Bounds, MinCutIsTheLeastOfAllCuts) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const FlowGraph graph = random_graph(random);
    double least = std::numeric_limits<double>::infinity();
    for (unsigned inside = 0; inside < 1U << graph.vertices; ++inside)
      if ((inside & 1) != 0 && (inside & 2) == 0) least = std::min(least, leaving(graph, inside));
    EXPECT_NEAR(min_cut(graph, 0, 1).capacity, least, 1e-9) << "graph " << round;
  }
}

TEST(Bounds, AllGatherCutIsTheWorstOfAllCuts) {
  std::mt19937 random(2);
  for (int round = 0; round < 1000; ++round) {
    const FlowGraph graph = random_graph(random);
    const int all = ranks_in(graph, (1U << graph.vertices) - 1);
    double worst = 0;
    for (unsigned inside = 1; inside + 1 < 1U << graph.vertices; ++inside)
      if (ranks_in(graph, inside) < all)
        worst = std::max(worst, ranks_in(graph, inside) / leaving(graph, inside));
    const Cut cut = all_gather_cut(graph);
    EXPECT_NEAR(ranks_in(graph, cut) / cut.capacity, worst, 1e-9 * worst) << "graph " << round;
    EXPECT_LT(ranks_in(graph, cut), all);
  }
}

TEST(Bounds, TestingFewVerticesGivesAWeakerBound) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const FlowGraph graph = random_graph(random);
    const Cut exact = all_gather_cut(graph);
    const Cut weaker = all_gather_cut(graph, 1);
    EXPECT_LE(ranks_in(graph, weaker) / weaker.capacity,
              ranks_in(graph, exact) / exact.capacity * (1 + 1e-9));
  }
}

Bounds bounds_of(const Topology& topology, int ranks, Collective collective, Rank root = 0) {
  const std::vector<VertexId> placement = default_placement(topology, ranks);
  Machine machine(topology, placement);
  const Result<Bounds> bounds = find_bounds(machine, collective, root);
  EXPECT_TRUE(bounds.ok()) << bounds.status().message();
  return bounds.ok() ? *bounds : Bounds{};
}

Topology line(const char* text) { return *parse_synthetic_topology(text); }

// A hierarchy of groups of g ranks with b bytes per ns in and out: a part of every rank takes
// max over levels of (N - g) / b. GPUs reach the rest of their node by NVLink and PCI Express.
TEST(Bounds, HierarchyHasItsClosedForm) {
  const Topology wide = line("4x8 nvlink=450 nic=50 pcie=50");
  EXPECT_NEAR(bounds_of(wide, 32, Collective::all_gather).link_ns_per_byte,
              std::max(31 / 500.0, 24 / 400.0), 1e-12);
  const Topology narrow = line("4x8 nvlink=450 nic=10 pcie=50");
  EXPECT_NEAR(bounds_of(narrow, 32, Collective::all_gather).link_ns_per_byte, 24 / 80.0, 1e-12);
  EXPECT_NEAR(bounds_of(narrow, 32, Collective::reduce_scatter).link_ns_per_byte, 24 / 80.0, 1e-12);
  // Both, on a thirty-second of the data.
  EXPECT_NEAR(bounds_of(narrow, 32, Collective::all_reduce).link_ns_per_byte, 2 * 24 / 80.0 / 32,
              1e-12);
  EXPECT_NEAR(bounds_of(narrow, 32, Collective::broadcast).link_ns_per_byte, 1 / 80.0, 1e-12);
  EXPECT_NEAR(bounds_of(narrow, 32, Collective::reduce, 31).link_ns_per_byte, 1 / 80.0, 1e-12);
  // The root's own links: 31 blocks through what one GPU has.
  EXPECT_NEAR(bounds_of(wide, 32, Collective::gather, 5).link_ns_per_byte,
              std::max(31 / 500.0, 24 / 400.0), 1e-12);
  EXPECT_NEAR(bounds_of(narrow, 32, Collective::gather).link_ns_per_byte, 24 / 80.0, 1e-12);
  EXPECT_NEAR(bounds_of(narrow, 32, Collective::scatter).link_ns_per_byte, 24 / 80.0, 1e-12);
  // 8 ranks send a block to each of 24 others.
  EXPECT_NEAR(bounds_of(narrow, 32, Collective::all_to_all).link_ns_per_byte, 8 * 24 / 80.0, 1e-12);
  EXPECT_NE(bounds_of(narrow, 32, Collective::all_to_all).link_origin.find("80 GB/s"),
            std::string::npos);
}

TEST(Bounds, SharedMemoryIsLimitedByReadingAndWriting) {
  const Topology cores = line("1x4 memory=10");
  const Bounds bounds = bounds_of(cores, 4, Collective::all_reduce);
  EXPECT_EQ(bounds.link_ns_per_byte, 0);
  EXPECT_NE(bounds.link_origin.find("share memory"), std::string::npos);
  // Four inputs read, four outputs written, by four cores of 20 bytes per ns.
  EXPECT_DOUBLE_EQ(bounds.memory_ns_per_byte, 8 / 80.0);
  // Eight ranks on these cores do twice the work, most quickly if all of it stays in their caches.
  const double near = CostConstants().in_caches.near;
  EXPECT_DOUBLE_EQ(bounds_of(cores, 8, Collective::all_reduce).memory_ns_per_byte,
                   near * 16 / 80.0);
}

TEST(Bounds, NewsTakeRounds) {
  // Send 60, travel 100, receive 60, and 20 for the step at either end.
  EXPECT_DOUBLE_EQ(bounds_of(line("2"), 2, Collective::all_reduce).latency_ns, 260);
  // The root tells a second rank 60 later, before the first can have passed anything on.
  EXPECT_DOUBLE_EQ(bounds_of(line("3"), 3, Collective::all_reduce).latency_ns, 320);
  EXPECT_DOUBLE_EQ(bounds_of(line("33"), 33, Collective::send_recv, 1).latency_ns, 260);
  EXPECT_GT(bounds_of(line("33"), 33, Collective::barrier).latency_ns, 500);
}

TEST(Bounds, NothingTravelsAlone) {
  for (const Collective collective : kAllCollectives) {
    const Bounds bounds = bounds_of(line("1"), 1, collective);
    EXPECT_EQ(bounds.latency_ns, 0);
    EXPECT_EQ(bounds.link_ns_per_byte, 0);
    EXPECT_EQ(bounds.memory_ns_per_byte, 0);
  }
  EXPECT_EQ(bounds_of(line("3"), 3, Collective::send_recv, 0).latency_ns, 0);
}

}  // namespace
}  // namespace tutti::collectives
