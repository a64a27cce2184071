// Paths on topologies small enough to know the answer.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tutti/topology.hpp"

namespace tutti {
namespace {

Topology synthetic(const char* line) { return parse_synthetic_topology(line).value(); }

VertexId at(const Topology& topology, const char* name) { return topology.find(name).value(); }

// The vertices that the path visits, ends included.
std::vector<std::string> stops(const Topology& topology, VertexId from, const Path& path) {
  std::vector<std::string> names{topology.vertex(from).name};
  for (const Hop hop : path.hops) {
    const Link& link = topology.link(hop.link);
    EXPECT_EQ(topology.vertex(hop.reverse ? link.b : link.a).name, names.back());
    names.push_back(topology.vertex(hop.reverse ? link.a : link.b).name);
  }
  return names;
}

std::vector<std::string> stops(const Topology& topology, const char* from, const char* to) {
  const VertexId begin = at(topology, from);
  return stops(topology, begin, find_path(topology, begin, at(topology, to)).value());
}

using Names = std::vector<std::string>;

TEST(Paths, NvlinkInsideANode) {
  const Topology topology = synthetic("4x8 nvlink=450 nic=50 nvlink_ns=300");
  const Path path = find_path(topology, at(topology, "n2/gpu1"), at(topology, "n2/gpu6")).value();
  EXPECT_EQ(stops(topology, at(topology, "n2/gpu1"), path),
            (Names{"n2/gpu1", "n2/nvswitch", "n2/gpu6"}));
  EXPECT_EQ(path.bandwidth, 450);
  EXPECT_EQ(path.latency_ns, 600);
}

TEST(Paths, OwnNicBetweenNodes) {
  const Topology topology = synthetic("4x8 nvlink=450 nic=50 pcie=63 pcie_ns=100 nic_ns=400");
  const Path path = find_path(topology, at(topology, "n0/gpu3"), at(topology, "n1/gpu5")).value();
  EXPECT_EQ(stops(topology, at(topology, "n0/gpu3"), path),
            (Names{"n0/gpu3", "n0/pcie3", "n0/nic3", "network", "n1/nic5", "n1/pcie5", "n1/gpu5"}));
  EXPECT_EQ(path.bandwidth, 50);
  EXPECT_EQ(path.latency_ns, 4 * 100 + 2 * 400);
}

TEST(Paths, GpusWithoutNvlinkGoOverTheHost) {
  const Topology topology = synthetic("1x4 pcie=32");
  EXPECT_EQ(stops(topology, "n0/gpu0", "n0/gpu3"),
            (Names{"n0/gpu0", "n0/pcie0", "n0/numa0", "n0/pcie3", "n0/gpu3"}));
}

TEST(Paths, FastNetworkDoesNotLureTrafficOutOfTheNode) {
  const Topology topology = synthetic("2x2 pcie=32 nic=100 numa=2 interconnect=5");
  const Path path = find_path(topology, at(topology, "n0/gpu0"), at(topology, "n0/gpu1")).value();
  EXPECT_EQ(path.bandwidth, 5);
  for (const Hop hop : path.hops) EXPECT_NE(topology.link(hop.link).kind, LinkKind::network);
}

TEST(Paths, NothingPassesThroughCoresOrGpus) {
  TopologyBuilder builder;
  const VertexId node = builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  std::vector<VertexId> gpus;
  for (const char* name : {"g0", "g1", "g2"})
    gpus.push_back(builder.add_vertex({VertexKind::gpu, name, node, {}}));
  builder.connect(LinkKind::nvlink, gpus[0], gpus[1], 1, 100, LinkSource::given);
  builder.connect(LinkKind::nvlink, gpus[1], gpus[2], 1, 100, LinkSource::given);
  const Topology topology = std::move(builder).build().value();
  const Result<Path> path = find_path(topology, gpus[0], gpus[2]);
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(path.status().message().find("'g0' and 'g2'"), std::string::npos);
  EXPECT_TRUE(find_path(topology, gpus[0], gpus[1]).ok());
}

// Between s and t: narrow and quick, wide and slow, wide and quick in more hops.
TEST(Paths, WidestThenQuickestThenFewestHops) {
  TopologyBuilder builder;
  const VertexId node = builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  std::vector<VertexId> v;
  for (const char* name : {"s", "t", "a", "b"})
    v.push_back(builder.add_vertex({VertexKind::gpu_switch, name, node, {}}));
  const auto link = [&](int x, int y, double latency_ns, double bandwidth) {
    return builder.connect(LinkKind::nvlink, v[static_cast<std::size_t>(x)],
                           v[static_cast<std::size_t>(y)], latency_ns, bandwidth,
                           LinkSource::given);
  };
  link(0, 1, 1, 10);
  link(0, 1, 100, 50);
  const LinkId to_a = link(0, 2, 20, 50);
  const LinkId from_a = link(1, 2, 20, 60);
  link(0, 3, 20, 50);
  link(3, 1, 20, 60);
  const Topology topology = std::move(builder).build().value();
  const Path path = find_path(topology, v[0], v[1]).value();
  EXPECT_EQ(path.hops, (std::vector<Hop>{{to_a, false}, {from_a, true}}));
  EXPECT_EQ(path.bandwidth, 50);
  EXPECT_EQ(path.latency_ns, 40);
}

TEST(Paths, DirectionsHaveTheirOwnWidth) {
  TopologyBuilder builder;
  const VertexId a = builder.add_vertex({VertexKind::node, "a", VertexId::none, {}});
  const VertexId b = builder.add_vertex({VertexKind::node, "b", VertexId::none, {}});
  builder.add_link({LinkKind::network, a, b, 5, 10, 1, false, LinkSource::given});
  const Topology topology = std::move(builder).build().value();
  const Path there = find_path(topology, a, b).value();
  const Path back = find_path(topology, b, a).value();
  EXPECT_EQ(there.bandwidth, 10);
  EXPECT_EQ(back.bandwidth, 1);
  EXPECT_NE(capacity_index(topology, there.hops[0]), capacity_index(topology, back.hops[0]));
}

TEST(Paths, HalfDuplexLinksAreOneCapacity) {
  const Topology topology = synthetic("1x2 memory=20");
  const VertexId core0 = at(topology, "n0/core0");
  const VertexId core1 = at(topology, "n0/core1");
  const Path there = find_path(topology, core0, core1).value();
  const Path back = find_path(topology, core1, core0).value();
  ASSERT_EQ(there.hops.size(), 2u);
  EXPECT_EQ(capacity_index(topology, there.hops[0]), capacity_index(topology, back.hops[1]));
  EXPECT_EQ(capacity_index(topology, there.hops[1]), capacity_index(topology, back.hops[0]));
  EXPECT_LT(capacity_index(topology, there.hops[1]), 2 * topology.links().size());
}

TEST(Paths, ToItselfIsFree) {
  const Topology topology = synthetic("2");
  const VertexId core = at(topology, "n0/core1");
  const Path path = find_path(topology, core, core).value();
  EXPECT_TRUE(path.hops.empty());
  EXPECT_EQ(path.latency_ns, 0);
  EXPECT_TRUE(std::isinf(path.bandwidth));
}

}  // namespace
}  // namespace tutti
