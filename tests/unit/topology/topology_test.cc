// The value itself: what build() accepts and what it says of what it refuses.
#include "tutti/topology.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace tutti {
namespace {

Vertex vertex(VertexKind kind, std::string name, VertexId parent = VertexId::none) {
  return {kind, std::move(name), parent, {}};
}

// A node with two cores on one memory domain.
TopologyBuilder small() {
  TopologyBuilder builder;
  const VertexId node = builder.add_vertex(vertex(VertexKind::node, "n0"));
  const VertexId numa = builder.add_vertex(vertex(VertexKind::numa, "n0/numa0", node));
  for (const char* name : {"n0/core0", "n0/core1"}) {
    const VertexId core = builder.add_vertex(vertex(VertexKind::core, name, numa));
    builder.connect(LinkKind::memory, core, numa, 50, 12, LinkSource::measured);
  }
  return builder;
}

void expect_refused(TopologyBuilder builder, const std::string& why) {
  const Result<Topology> built = std::move(builder).build();
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(built.status().message().find(why), std::string::npos) << built.status().message();
}

TEST(Topology, AnswersWhatItWasMadeOf) {
  const Result<Topology> built = small().build();
  ASSERT_TRUE(built.ok()) << built.status().message();
  const Topology& topology = *built;
  const VertexId numa = topology.find("n0/numa0").value();
  const VertexId core1 = topology.find("n0/core1").value();
  EXPECT_EQ(topology.find("n0/core2"), std::nullopt);
  EXPECT_EQ(topology.vertex(core1).kind, VertexKind::core);
  EXPECT_EQ(topology.vertex(core1).parent, numa);
  EXPECT_EQ(topology.node_of(core1), topology.find("n0").value());
  EXPECT_EQ(topology.children_of(numa).size(), 2u);
  EXPECT_EQ(topology.of_kind(VertexKind::core), topology.children_of(numa));
  EXPECT_EQ(topology.links_at(numa).size(), 2u);
  ASSERT_EQ(topology.links_at(core1).size(), 1u);
  const Link& link = topology.link(topology.links_at(core1)[0]);
  EXPECT_TRUE(link.half_duplex);
  EXPECT_EQ(link.bandwidth_ab, 12);
  EXPECT_EQ(link.source, LinkSource::measured);
}

TEST(Topology, NetworkBelongsToNoNode) {
  TopologyBuilder builder = small();
  const VertexId network = builder.add_vertex(vertex(VertexKind::network_switch, "network"));
  const Result<Topology> built = std::move(builder).build();
  ASSERT_TRUE(built.ok());
  EXPECT_EQ(built.value().node_of(network), VertexId::none);
}

TEST(Topology, ComparesByContent) {
  TopologyBuilder other = small();
  other.link(LinkId{0}).latency_ns = 51;
  const Topology a = small().build().value();
  const Topology b = small().build().value();
  const Topology c = std::move(other).build().value();
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a == c);
}

TEST(TopologyBuilder, RefusesBadVertices) {
  expect_refused(TopologyBuilder(), "no node");
  TopologyBuilder twice = small();
  twice.add_vertex(vertex(VertexKind::gpu, "n0/core0"));
  expect_refused(std::move(twice), "'n0/core0'");
  TopologyBuilder unnamed = small();
  unnamed.add_vertex(vertex(VertexKind::gpu, "a b"));
  expect_refused(std::move(unnamed), "vertex 4");
  TopologyBuilder forward = small();
  forward.add_vertex(vertex(VertexKind::gpu, "n0/gpu0", VertexId{4}));
  expect_refused(std::move(forward), "'n0/gpu0'");
  TopologyBuilder binary = small();
  binary.vertex(VertexId{0}).info["model"] = "a\nb";
  expect_refused(std::move(binary), "'model' of 'n0'");
}

TEST(TopologyBuilder, RefusesEndlessNesting) {
  TopologyBuilder builder = small();
  VertexId parent{0};
  for (int i = 0; i < 100; ++i)
    parent = builder.add_vertex(vertex(VertexKind::pci_bridge, "n0/b" + std::to_string(i), parent));
  expect_refused(std::move(builder), "nested deeper");
}

TEST(TopologyBuilder, RefusesBadLinks) {
  const auto with_link = [](Link link) {
    TopologyBuilder builder = small();
    builder.add_link(link);
    return builder;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const Link good{LinkKind::pcie, VertexId{1}, VertexId{2}, 1, 2, 3, false, LinkSource::given};
  EXPECT_TRUE(with_link(good).build().ok());
  Link link = good;
  link.b = VertexId{9};
  expect_refused(with_link(link), "link 2: an end");
  link.b = VertexId::none;
  expect_refused(with_link(link), "link 2: an end");
  link = good;
  link.b = link.a;
  expect_refused(with_link(link), "same vertex");
  for (const double bad : {-1.0, nan, infinity}) {
    link = good;
    link.latency_ns = bad;
    expect_refused(with_link(link), "latency");
  }
  for (const double bad : {0.0, -1.0, nan, infinity}) {
    link = good;
    link.bandwidth_ba = bad;
    expect_refused(with_link(link), "bandwidth");
  }
  link = good;
  link.half_duplex = true;
  expect_refused(with_link(link), "half-duplex");
}

}  // namespace
}  // namespace tutti
