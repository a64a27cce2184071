// Seats and who sits there.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/topology.hpp"

namespace tutti {
namespace {

using Names = std::vector<std::string>;

Names names_of(const Topology& topology, const std::vector<VertexId>& ids) {
  Names names;
  for (const VertexId id : ids) names.push_back(topology.vertex(id).name);
  return names;
}

Topology synthetic(const char* line) { return parse_synthetic_topology(line).value(); }

TEST(Placement, GpusWhereThereAreAny) {
  const Topology topology = synthetic("2x2 nvlink=450");
  EXPECT_EQ(names_of(topology, seats(topology)),
            (Names{"n0/gpu0", "n0/gpu1", "n1/gpu0", "n1/gpu1"}));
  EXPECT_TRUE(seats(topology, SeatKind::core).empty());
  EXPECT_TRUE(default_placement(topology, 3, SeatKind::core).empty());
}

TEST(Placement, NodesWhereThereIsNothingElse) {
  TopologyBuilder builder;
  builder.add_vertex({VertexKind::node, "a", VertexId::none, {}});
  const Topology topology = std::move(builder).build().value();
  EXPECT_EQ(names_of(topology, default_placement(topology, 2)), (Names{"a", "a"}));
}

TEST(Placement, OneSeatEachWhileTheyLast) {
  const Topology topology = synthetic("2x2");
  EXPECT_EQ(names_of(topology, default_placement(topology, 3)),
            (Names{"n0/core0", "n0/core1", "n1/core0"}));
  EXPECT_TRUE(default_placement(topology, 0).empty());
  EXPECT_TRUE(default_placement(topology, -1).empty());
}

TEST(Placement, MoreRanksGoRoundInContiguousBlocks) {
  const Topology topology = synthetic("2x2");
  EXPECT_EQ(names_of(topology, default_placement(topology, 6)),
            (Names{"n0/core0", "n0/core1", "n0/core0", "n1/core0", "n1/core1", "n1/core0"}));
  const Topology host = synthetic("2");
  EXPECT_EQ(names_of(host, default_placement(host, 5)),
            (Names{"n0/core0", "n0/core1", "n0/core0", "n0/core1", "n0/core0"}));
}

TEST(Placement, CpusOfWhatAVertexContains) {
  TopologyBuilder builder;
  const VertexId node = builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  const VertexId core0 = builder.add_vertex({VertexKind::core, "c0", node, {{"pus", "0,24"}}});
  builder.add_vertex({VertexKind::core, "c1", node, {{"pus", "1,x,25"}}});
  const Topology topology = std::move(builder).build().value();
  EXPECT_EQ(cpus_of(topology, core0), (std::vector<int>{0, 24}));
  EXPECT_EQ(cpus_of(topology, node), (std::vector<int>{0, 1, 24, 25}));
}

}  // namespace
}  // namespace tutti
