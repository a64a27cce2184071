// The cost model: small cases against arithmetic by hand.
#include "collectives/cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "tutti/topology.hpp"

namespace tutti::collectives {
namespace {

// GPUs joined by one link in a row: 0 - 1 - 2 ..., each 100 bytes per ns and 1000 ns.
Topology row_of_gpus(int count) {
  TopologyBuilder builder;
  const VertexId node = builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
  std::vector<VertexId> gpus;
  for (int i = 0; i < count; ++i) {
    gpus.push_back(builder.add_vertex({VertexKind::gpu, "gpu" + std::to_string(i), node, {}}));
    if (i > 0)
      builder.connect(LinkKind::nvlink, gpus[gpus.size() - 2], gpus.back(), 1000, 100,
                      LinkSource::given);
  }
  return *std::move(builder).build();
}

// A core each, on one network of 2 bytes per ns.
Topology two_hosts() {
  TopologyBuilder builder;
  const VertexId network =
      builder.add_vertex({VertexKind::network_switch, "network", VertexId::none, {}});
  for (int i = 0; i < 2; ++i) {
    const std::string number = std::to_string(i);
    const VertexId node = builder.add_vertex({VertexKind::node, "n" + number, VertexId::none, {}});
    const VertexId core = builder.add_vertex({VertexKind::core, "core" + number, node, {}});
    builder.connect(LinkKind::network, core, network, 8000, 2, LinkSource::given);
  }
  return *std::move(builder).build();
}

struct World {
  World(Topology t, int ranks)
      : topology(std::move(t)),
        placement(default_placement(topology, ranks)),
        machine(topology, placement) {}

  CostGraph graph(Collective collective, const char* algorithm, bool direct, Rank root = 0) {
    const auto entry = find_algorithm(collective, algorithm);
    const auto schedule = build(**entry, machine.ranks(), root);
    return *CostGraph::make(lower_all(*schedule), machine, direct);
  }

  Topology topology;
  std::vector<VertexId> placement;
  Machine machine;
};

TEST(Cost, BroadcastOverOneLinkStaged) {
  World world(row_of_gpus(2), 2);
  const CostConstants& c = world.machine.constants();
  const double bytes = 1e6;
  const SliceCost cost =
      world.graph(Collective::broadcast, "direct", false).price(world.machine, bytes);
  // The link begins when the root begins to copy, and takes longer than the root's own work.
  const double on_link = bytes / 100;
  const double travel = 1000 + c.gpu.wake_ns;
  const double receiver = c.step_ns + c.gpu.receive_ns + 2 * bytes / c.gpu_bytes_per_ns;
  EXPECT_NEAR(cost.time_ns, on_link + travel + receiver, 1e-6 * cost.time_ns);
  EXPECT_NEAR(cost.busy_ns, on_link, 1e-6 * cost.busy_ns);
  EXPECT_EQ(world.machine.name(cost.busiest), "gpu0 -> gpu1 (100 GB/s)");
  EXPECT_EQ(cost.alike, 1);
}

TEST(Cost, WhatStaysOnACoreTravelsNoWay) {
  const Topology two_cores = *parse_synthetic_topology("2 memory=12 memory_ns=50");
  const std::vector<VertexId> apart = default_placement(two_cores, 2);
  const std::vector<VertexId> shared = {apart[0], apart[0], apart[1]};
  Machine alone(two_cores, apart);
  Machine crowded(two_cores, shared);
  EXPECT_FALSE(alone.takes_turns());
  EXPECT_TRUE(crowded.takes_turns());
  EXPECT_EQ(crowded.sharers(1), 2);
  EXPECT_EQ(crowded.turn(1), 1);
  EXPECT_EQ(crowded.sharers(2), 1);
  EXPECT_EQ((*crowded.route(0, 2))->latency_ns, (*alone.route(0, 1))->latency_ns);
  EXPECT_EQ((*crowded.route(1, 0))->latency_ns, 0);
  EXPECT_TRUE((*crowded.route(1, 0))->in_one_seat);
  EXPECT_FALSE((*crowded.route(2, 0))->in_one_seat);
  EXPECT_EQ((*crowded.route(1, 0))->overhead.payload_ns, 0);
  EXPECT_GT((*crowded.route(2, 0))->overhead.payload_ns, 0);
}

TEST(Cost, AllReduceOfTwoCoresByDoubling) {
  World world(*parse_synthetic_topology("2 memory=12 memory_ns=50"), 2);
  const SliceCost cost =
      world.graph(Collective::all_reduce, "doubling", false).price(world.machine, 2400);
  // Copy out (read and write), 100 ns of path, reduce (read twice, write once), at 24 bytes per ns.
  const double payload = world.machine.constants().shared_memory.payload_ns;
  const double send = 20 + 60 + payload + 2 * 100;
  const double reduce = 20 + 60 + payload + 3 * 100;
  EXPECT_NEAR(cost.time_ns, send + 100 + reduce, 1e-3);
  EXPECT_NEAR(cost.busy_ns, send + reduce, 1e-3);
  EXPECT_EQ(cost.alike, 2);
  EXPECT_EQ(world.machine.name(cost.busiest), "memory of rank 0 (n0/core0, 24 GB/s)");
}

// Or cutting messages would look cheap.
TEST(Cost, HalvesOfAMessageCostNoLessThanTheWhole) {
  World world(*parse_synthetic_topology("2"), 2);
  const CostGraph staged = world.graph(Collective::all_reduce, "doubling", false);
  for (double bytes = 16; bytes <= 65536; bytes *= 1.5)
    EXPECT_LE(staged.price(world.machine, bytes).busy_ns,
              2 * staged.price(world.machine, bytes / 2).busy_ns)
        << bytes;
}

TEST(Cost, DirectAllReduceReadsAndWritesOnce) {
  World world(*parse_synthetic_topology("2 memory=12 memory_ns=50"), 2);
  const CostGraph direct = world.graph(Collective::all_reduce, "direct", true);
  EXPECT_TRUE(direct.any_direct());
  EXPECT_DOUBLE_EQ(direct.exchange_ns(), 100 + 60 + 60);
  const double bytes = 24000;
  const double overhead = direct.price(world.machine, 0).busy_ns;
  const SliceCost cost = direct.price(world.machine, bytes);
  // Each rank reads its half of both inputs and stores it into both outputs.
  EXPECT_NEAR(cost.busy_ns, overhead + 4 * bytes / 24, 1e-3);
  // Through queues it is read and written twice.
  const CostGraph staged = world.graph(Collective::all_reduce, "direct", false);
  EXPECT_FALSE(staged.any_direct());
  EXPECT_EQ(staged.exchange_ns(), 0);
  EXPECT_NEAR(
      staged.price(world.machine, 2 * bytes).busy_ns - staged.price(world.machine, bytes).busy_ns,
      8 * bytes / 24, 1e-3);
}

TEST(Cost, MessagesQueueForALink) {
  // Both of the root's messages leave over its own link, one after the other.
  const Topology topology = *parse_synthetic_topology("1x3 nvlink=100 nvlink_ns=500");
  World world(topology, 3);
  const double bytes = 1e6;
  const SliceCost cost =
      world.graph(Collective::broadcast, "direct", false).price(world.machine, bytes);
  EXPECT_NEAR(cost.busy_ns, 2 * bytes / 100, 1e-3);
  EXPECT_EQ(world.machine.name(cost.busiest), "n0/gpu0 -> n0/nvswitch (100 GB/s)");
  EXPECT_GT(cost.time_ns, 2 * bytes / 100 + 1000);
}

// Who moves the bytes of a socket also does the work on its messages.
TEST(Cost, SocketsWaitForTheWorkOnTheirMessages) {
  const Topology topology = two_hosts();
  World world(topology, 2);
  const CostConstants& c = world.machine.constants();
  const double bytes = 1e5;
  const SliceCost cost =
      world.graph(Collective::broadcast, "direct", false).price(world.machine, bytes);
  EXPECT_FALSE(world.machine.is_processor(cost.busiest));
  const double message_ns = c.sockets.send_ns + c.sockets.receive_ns;
  EXPECT_NEAR(cost.busy_ns, bytes / 2 + message_ns + 2 * c.sockets.payload_ns, 1e-3);
  const SliceCost small =
      world.graph(Collective::broadcast, "direct", false).price(world.machine, 4);
  EXPECT_NEAR(small.busy_ns, 4.0 / 2 + message_ns, 0.01 * message_ns);
}

TEST(Cost, RanksOnOneCoreShareIt) {
  World apart(*parse_synthetic_topology("4"), 4);
  World together(*parse_synthetic_topology("1x1"), 4);
  const double bytes = 1e5;
  const SliceCost a =
      apart.graph(Collective::all_reduce, "direct", true).price(apart.machine, bytes);
  const SliceCost t =
      together.graph(Collective::all_reduce, "direct", true).price(together.machine, bytes);
  EXPECT_NEAR(t.busy_ns, 4 * a.busy_ns, 1e-6 * t.busy_ns);
  EXPECT_EQ(a.alike, 4);
  EXPECT_EQ(t.alike, 1);
}

TEST(Cost, DirectStopsAtTheNode) {
  World world(*parse_synthetic_topology("2x1 nic=10"), 2);
  EXPECT_FALSE(world.graph(Collective::all_reduce, "direct", true).any_direct());
  const auto route = world.machine.route(0, 1);
  ASSERT_TRUE(route.ok());
  EXPECT_FALSE((*route)->shares_memory);
  EXPECT_EQ((*route)->overhead.send_ns, world.machine.constants().sockets.send_ns);
}

TEST(Cost, EveryAlgorithmRunsToItsEnd) {
  for (const Algorithm& algorithm : all_algorithms()) {
    for (const int ranks : {1, 2, 3, 4, 7, 8, 12}) {
      const int group = algorithm.grouped ? 4 : 1;
      const Result<Schedule> schedule = build(algorithm, ranks, ranks / 2, group);
      if (!schedule.ok()) continue;
      World world(*parse_synthetic_topology("3x4"), ranks);
      for (const bool direct : {false, true}) {
        const CostGraph graph = *CostGraph::make(lower_all(*schedule), world.machine, direct);
        const SliceCost small = graph.price(world.machine, 8);
        const SliceCost large = graph.price(world.machine, 80000);
        EXPECT_GT(small.time_ns, 0) << algorithm.name << " " << ranks;
        EXPECT_GT(large.time_ns, small.time_ns) << algorithm.name << " " << ranks;
        EXPECT_LE(small.busy_ns, small.time_ns * (1 + 1e-9));
        EXPECT_LE(large.busy_ns, large.time_ns * (1 + 1e-9));
      }
    }
  }
}

// The root's own copy costs nothing, because what is broadcast lies in place; what it stores into
// the others' memory does, and spares them the reading.
TEST(Cost, ARootThatHelpsHalvesTheTimeOfABroadcast) {
  World world(*parse_synthetic_topology("2"), 2);
  const auto time = [&](const char* algorithm, double chunk_bytes) {
    const CostGraph graph = world.graph(Collective::broadcast, algorithm, true);
    return graph.price(world.machine, chunk_bytes).time_ns;
  };
  const double alone = time("direct", 2e6);
  EXPECT_NEAR(time("cooperative", 1e6), alone / 2, 0.01 * alone);  // of two chunks
}

TEST(Cost, SlicesFollowAtThePaceOfTheBusiest) {
  const CostConstants constants;
  const SliceCost slice{1000, 400, 0, 1};
  EXPECT_DOUBLE_EQ(call_ns(constants, slice, 50, 1, 1), 1050);
  EXPECT_DOUBLE_EQ(call_ns(constants, slice, 50, 11, 1), 1050 + 10 * 400);
  EXPECT_DOUBLE_EQ(call_ns(constants, slice, 0, 5, 2), 1000 + 9 * 400);
  // No more than eight of a channel are under way: then a long way limits.
  const SliceCost far{80000, 100, 0, 1};
  EXPECT_DOUBLE_EQ(call_ns(constants, far, 0, 80, 1), 800000);
  EXPECT_DOUBLE_EQ(call_ns(constants, far, 0, 40, 2), 400000);
}

}  // namespace
}  // namespace tutti::collectives
