// The machines of device worlds: what is assumed of them, what was described, and that plans go by
// it.
#include "runtime/gpu/host/device_topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/gpu/host/plans.hpp"

namespace tutti::runtime::gpu {
namespace {

using ::testing::HasSubstr;

// GPUs at 0000:01:00.0 and so on, each linked to a switch so fast.
Topology host_of(int gpus, double bandwidth) {
  TopologyBuilder builder;
  const VertexId node = builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  const VertexId numa = builder.add_vertex({VertexKind::numa, "n0/numa0", node, {}});
  for (int i = 0; i < gpus; ++i) {
    const VertexId gpu =
        builder.add_vertex({VertexKind::gpu,
                            "n0/gpu" + std::to_string(i),
                            numa,
                            {{"pci", "0000:0" + std::to_string(i + 1) + ":00.0"}}});
    builder.connect(LinkKind::pcie, numa, gpu, 100, bandwidth, LinkSource::reported);
  }
  return std::move(builder).build().value();
}

std::vector<DevicePlace> places_of(const std::vector<std::pair<std::size_t, int>>& ranks) {
  std::vector<DevicePlace> places;
  for (const auto& [host, gpu] : ranks)
    places.push_back({host, "0000:0" + std::to_string(gpu + 1) + ":00.0"});
  return places;
}

double bandwidth_between(const DeviceTopology& topology, std::size_t a, std::size_t b) {
  return find_path(topology.topology, topology.placement[a], topology.placement[b])->bandwidth;
}

TEST(DeviceTopology, IsAssumedWhereNobodyDescribesIt) {
  const auto one = assumed_topology(3, 1, {});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(bandwidth_between(*one, 0, 2), 450);
  const auto shared = assumed_topology(4, 2, {});
  EXPECT_EQ(bandwidth_between(*shared, 0, 1), 750);
  const std::vector<int> hosts{7, 3, 7};
  const auto two = assumed_topology(3, 1, hosts);
  EXPECT_EQ(bandwidth_between(*two, 0, 2), 450);
  EXPECT_EQ(bandwidth_between(*two, 0, 1), 5);
}

TEST(DeviceTopology, FindsTheGpusOfRanks) {
  const Topology host = host_of(4, 30);
  std::vector<DevicePlace> places = places_of({{0, 2}, {0, 0}});
  const auto made = described_topology(std::span(&host, 1), places);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->topology, host);
  EXPECT_EQ(made->topology.vertex(made->placement[0]).name, "n0/gpu2");
  EXPECT_EQ(made->topology.vertex(made->placement[1]).name, "n0/gpu0");
  EXPECT_EQ(bandwidth_between(*made, 0, 1), 30);
  TopologyBuilder builder;
  builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  builder.add_vertex({VertexKind::gpu, "n0/gpu0", VertexId{0}, {{"pci", "0000:0a:00.0"}}});
  const Topology other = std::move(builder).build().value();
  places = {{0, "0000:0A:00.0"}};
  EXPECT_TRUE(described_topology(std::span(&other, 1), places).ok());
}

// Whatever their NICs could do: their processors carry what goes between them.
TEST(DeviceTopology, PutsHostsSideBySide) {
  const std::vector<Topology> hosts{host_of(2, 30), host_of(3, 40)};
  const auto made = described_topology(hosts, places_of({{0, 0}, {1, 2}, {1, 0}}));
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->topology.of_kind(VertexKind::node).size(), 2U);
  EXPECT_EQ(made->topology.vertex(made->placement[1]).name, "h1/n0/gpu2");
  EXPECT_EQ(bandwidth_between(*made, 1, 2), 40);
  EXPECT_EQ(bandwidth_between(*made, 0, 1), 5);
  EXPECT_NE(made->topology.node_of(made->placement[0]), made->topology.node_of(made->placement[1]));
}

TEST(DeviceTopology, SaysWhatItCannotBe) {
  const Topology host = host_of(2, 30);
  const auto message_of = [&](const std::vector<std::pair<std::size_t, int>>& ranks) {
    const auto made = described_topology(std::span(&host, 1), places_of(ranks));
    return made.ok() ? std::string() : made.status().message();
  };
  EXPECT_EQ(message_of({{0, 0}, {0, 1}}), "");
  EXPECT_THAT(message_of({{0, 0}, {0, 4}}), HasSubstr("rank 1's GPU at 0000:05:00.0"));
  EXPECT_THAT(message_of({{0, 1}, {0, 1}}), HasSubstr("ranks 0 and 1 share a GPU"));
  TopologyBuilder builder;
  builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  builder.add_vertex({VertexKind::gpu, "a", VertexId{0}, {{"pci", "0000:01:00.0"}}});
  builder.add_vertex({VertexKind::gpu, "b", VertexId{0}, {{"pci", "0000:02:00.0"}}});
  const Topology apart = std::move(builder).build().value();
  const auto made = described_topology(std::span(&apart, 1), places_of({{0, 0}, {0, 1}}));
  EXPECT_THAT(made.status().message(), HasSubstr("nothing connects the GPUs of ranks 0 and 1"));
}

std::string algorithm_with(std::shared_ptr<const DeviceTopology> topology) {
  PlansOptions options;
  options.ranks = 4;
  options.channels = 4;
  options.slot_bytes = 64 * 1024;
  options.direct = false;
  options.topology = std::move(topology);
  collectives::PlanQuery query;
  query.collective = Collective::all_reduce;
  query.count = std::size_t{4} << 20;
  const auto plan = (*Plans::make(options))->find(query);
  return plan.ok() ? plan->programs->algorithm : plan.status().to_string();
}

// Two pairs of GPUs that are near each other, and little between the pairs.
TEST(DeviceTopology, IsWhatPlansGoBy) {
  const std::vector<Topology> hosts{host_of(2, 200), host_of(2, 200)};
  const auto places = places_of({{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  const auto made = described_topology(hosts, places);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(algorithm_with(std::make_shared<const DeviceTopology>(*made)), "hierarchical");
  EXPECT_NE(algorithm_with(nullptr), "hierarchical");
}

}  // namespace
}  // namespace tutti::runtime::gpu
