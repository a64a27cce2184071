// Ranks that share a processor: who gets it when, and what that makes of algorithms.
#include "collectives/turns.hpp"

#include <gtest/gtest.h>

#include "collectives/algorithms/table.hpp"
#include "collectives/cost.hpp"
#include "collectives/explain.hpp"
#include "collectives/lowering.hpp"
#include "collectives/planner.hpp"
#include "tutti/topology.hpp"

namespace tutti::collectives {
namespace {

TEST(Turns, WhoHasTheProcessorGoesOn) {
  Turns turns(3, 100);
  EXPECT_EQ(turns.next().start_ns, Turns::kNever);
  turns.open(0, 0, 7);
  turns.open(1, 0, 8);
  EXPECT_EQ(turns.next().start_ns, 0);
  EXPECT_EQ(turns.take(), 7U);
  turns.busy_until(50);
  // Its next step is ready: no switch.
  turns.open(0, 40, 9);
  EXPECT_EQ(turns.next().start_ns, 50);
  EXPECT_EQ(turns.take(), 9U);
  turns.busy_until(60);
  EXPECT_EQ(turns.next().start_ns, 160);
  EXPECT_EQ(turns.next().place, 1);
}

TEST(Turns, NewsThatComeLateWaitForTheNextRound) {
  Turns turns(3, 100);
  EXPECT_EQ(turns.visit_ns(2, 0), 200);
  EXPECT_EQ(turns.visit_ns(2, 200), 200);
  EXPECT_EQ(turns.visit_ns(2, 201), 500);
  EXPECT_EQ(turns.visit_ns(0, 1), 300) << "it has given the processor away meanwhile";
  EXPECT_EQ(turns.visit_ns(0, 3001), 3300);
}

TEST(Turns, TheEarliestVisitComesFirst) {
  Turns turns(4, 100);
  turns.open(3, 0, 3);
  EXPECT_EQ(turns.next().start_ns, 300);
  turns.open(1, 50, 1);
  EXPECT_EQ(turns.next().start_ns, 100);
  turns.open(2, 150, 2);
  EXPECT_EQ(turns.take(), 1U);
  turns.busy_until(220);
  EXPECT_EQ(turns.next().start_ns, 320);
  EXPECT_EQ(turns.take(), 2U);
  turns.busy_until(320);
  EXPECT_EQ(turns.take(), 3U);
}

TEST(Turns, FreeSwitchesMakeNobodyWait) {
  Turns turns(2, 0);
  turns.open(1, 77, 1);
  EXPECT_EQ(turns.next().start_ns, 77);
}

// Consecutive ranks share a core.
std::vector<VertexId> crowded(const Topology& topology, int ranks) {
  const std::vector<VertexId> cores = seats(topology);
  std::vector<VertexId> placement;
  for (int rank = 0; rank < ranks; ++rank)
    placement.push_back(
        cores[static_cast<std::size_t>(rank) * cores.size() / static_cast<std::size_t>(ranks)]);
  return placement;
}

struct Crowd {
  explicit Crowd(int ranks, const CostConstants& constants = {})
      : topology(*parse_synthetic_topology("2 memory=10 memory_ns=75")),
        placement(crowded(topology, ranks)),
        machine(topology, placement, constants) {}

  CostGraph graph(const char* algorithm, bool direct) {
    const auto schedule =
        build(**find_algorithm(Collective::all_reduce, algorithm), machine.ranks(), 0);
    return *CostGraph::make(lower_all(*schedule), machine, direct);
  }

  Topology topology;
  std::vector<VertexId> placement;
  Machine machine;
};

// Two ranks of a core that exchange a message each: one switch lets the other enter and send, and
// leave as well, since it finds what it waits for; with the next, the first leaves.
TEST(Turns, AnExchangeOnOneCoreTakesTwoSwitches) {
  const Topology topology = *parse_synthetic_topology("1 memory=10");
  const std::vector<VertexId> placement(2, seats(topology)[0]);
  Machine machine(topology, placement);
  const auto schedule = build(**find_algorithm(Collective::all_reduce, "one_shot"), 2, 0);
  const CostGraph graph = *CostGraph::make(lower_all(*schedule), machine, false);
  const SliceCost cost = graph.price(machine, 8);
  EXPECT_NEAR(cost.time_ns, 2 * machine.constants().switch_ns + cost.busy_ns, cost.busy_ns);
}

// In which order a core goes around nobody knows, so no ring may count on its own.
TEST(Turns, ARingTakesRoundsWhereDoublingTakesFew) {
  Crowd crowd(8);
  const double ring = crowd.graph("ring", false).price(crowd.machine, 8).time_ns;
  const double doubling = crowd.graph("doubling", false).price(crowd.machine, 8).time_ns;
  const double switch_ns = crowd.machine.constants().switch_ns;
  EXPECT_GT(ring, 30 * switch_ns) << "26 if the core went around the way the ring does";
  EXPECT_LT(doubling, 16 * switch_ns);
}

TEST(Turns, WhatStaysOnACoreIsCheapOnlyWhileItLiesInCaches) {
  Crowd crowd(4);
  EXPECT_EQ(crowd.machine.data_in(1 << 20), DataIn::caches);
  EXPECT_EQ(crowd.machine.data_in(16 << 20), DataIn::memory);
  CostConstants plain;
  plain.in_caches = plain.in_memory = SharedCoreBytes{};
  Crowd alike(4, plain);
  const double bytes = 1 << 18;
  auto busy = [&](Crowd& where, const char* algorithm, DataIn data) {
    return where.graph(algorithm, true).price(where.machine, bytes, data).busy_ns;
  };
  // Ranks 0 and 1 share a core: binomial crosses to the other one twice, direct with every rank.
  EXPECT_LT(busy(crowd, "binomial", DataIn::caches) / busy(alike, "binomial", DataIn::caches),
            0.8 * busy(crowd, "direct", DataIn::caches) / busy(alike, "direct", DataIn::caches));
  // A rank that is alone on its core pays what it always does.
  Crowd alone(2);
  EXPECT_EQ(alone.machine.data_in(8), DataIn::memory);
  EXPECT_EQ(busy(alone, "direct", DataIn::caches), busy(alone, "direct", DataIn::memory));
}

// Who has a core alone leaves when the others have read its memory, and only then enters again.
TEST(Turns, WhoIsAloneEntersAgainWhenItHasLeft) {
  const Topology topology = *parse_synthetic_topology("2 memory=10 memory_ns=1000");
  const std::vector<VertexId> cores = seats(topology);
  const std::vector<VertexId> placement = {cores[0], cores[0], cores[1]};
  CostConstants constants;
  constants.switch_ns = 0;
  Machine machine(topology, placement, constants);
  const auto schedule = build(**find_algorithm(Collective::reduce_scatter, "direct"), 3, 0);
  const CostGraph graph = *CostGraph::make(lower_all(*schedule), machine, true);
  const double way_ns = (*machine.route(2, 0))->latency_ns;
  EXPECT_GE(graph.price(machine, 8).time_ns, way_ns) << "the news that its input was read";
}

TEST(Turns, OneRoundIsWhereAllSendBeforeTheyHear) {
  Crowd crowd(4);
  EXPECT_TRUE(crowd.graph("one_shot", false).one_round());
  for (const char* name : {"direct", "doubling", "binomial", "ring"})
    EXPECT_FALSE(crowd.graph(name, false).one_round()) << name;
  // A root waits for nobody, whatever the others do.
  const auto broadcast = build(**find_algorithm(Collective::broadcast, "direct"), 4, 0);
  const CostGraph graph = *CostGraph::make(lower_all(*broadcast), crowd.machine, false);
  EXPECT_FALSE(graph.one_round());
  EXPECT_TRUE(graph.sent_at_once());
  EXPECT_TRUE(crowd.graph("one_shot", false).sent_at_once());
  for (const char* name : {"direct", "doubling", "binomial", "ring"})
    EXPECT_FALSE(crowd.graph(name, false).sent_at_once()) << name;
  const auto cooperative = build(**find_algorithm(Collective::broadcast, "cooperative"), 4, 0);
  EXPECT_FALSE(CostGraph::make(lower_all(*cooperative), crowd.machine, false)->sent_at_once());
}

// Each switch serves two calls of one round, as long as their messages are sent at once.
TEST(Turns, SmallCallsGoInOneRound) {
  for (int ranks = 3; ranks <= 9; ++ranks) {
    Topology topology = *parse_synthetic_topology("2 memory=10 memory_ns=75");
    std::vector<VertexId> placement = crowded(topology, ranks);
    Planner planner(std::move(topology), std::move(placement), {});
    const auto predicted = [&](std::size_t count) {
      const Explanation told = *planner.explain({Collective::all_reduce, count});
      const auto one_shot = std::find_if(
          told.candidates.begin(), told.candidates.end(),
          [](const Candidate& candidate) { return candidate.algorithm == "one_shot"; });
      // Only pairs have something that is about as quick, and quicker from 1 KiB on.
      const std::string_view quickest = ranks == 4 ? "leaders_in_turn" : "one_shot";
      EXPECT_TRUE(count > 256 || told.candidates[0].algorithm == quickest)
          << ranks << ", " << count;
      return one_shot->predicted_us;
    };
    predicted(2);
    predicted(256);
    const std::size_t most =
        std::min(kSentAtOnceBytes, kHeardAtOnceBytes / static_cast<std::size_t>(ranks - 1)) / 4;
    EXPECT_GT(predicted(most + 1), 1.5 * predicted(most)) << most << " values, and more";
  }
}

// A loop of calls is quicker than one alone, but not than what the machine allows.
TEST(Turns, NothingIsPredictedBelowItsBound) {
  for (const int ranks : {3, 4, 5, 8}) {
    Topology topology = *parse_synthetic_topology("2 memory=10 memory_ns=75");
    std::vector<VertexId> placement = crowded(topology, ranks);
    PlannerOptions options;
    options.direct_possible = true;
    Planner planner(std::move(topology), std::move(placement), options);
    for (const Collective collective : kAllCollectives)
      for (const std::size_t count : {std::size_t{2}, std::size_t{256}, std::size_t{4} << 20}) {
        const Explanation told = *planner.explain({collective, count});
        for (const Candidate& candidate : told.candidates) {
          if (!candidate.not_possible.empty()) continue;
          EXPECT_GE(candidate.predicted_us, 0.999 * told.bound_us())
              << ranks << " " << to_string(collective) << " " << candidate.algorithm;
        }
      }
  }
}

// What is fastest for owners that write and read their buffers between calls: measured with 4 and 8
// processes on two cores of an EPYC and of a Xeon.
TEST(Turns, SharedCoresReduceAmongThemselvesFirst) {
  for (const int ranks : {4, 8}) {
    Topology topology = *parse_synthetic_topology("2 memory=10 memory_ns=75");
    std::vector<VertexId> placement = crowded(topology, ranks);
    PlannerOptions options;
    options.direct_possible = true;
    options.direct_bytes_min = 4096;
    Planner planner(std::move(topology), std::move(placement), options);
    auto chosen = [&](std::size_t bytes) {
      return (*planner.plan({Collective::all_reduce, bytes / 4}, 0))->algorithm;
    };
    EXPECT_EQ(chosen(8), ranks == 4 ? "leaders_in_turn" : "one_shot") << ranks;
    EXPECT_EQ(chosen(4 << 10), ranks == 4 ? "leaders_in_turn" : "leaders_one_shot") << ranks;
    EXPECT_EQ(chosen(32 << 10), ranks == 4 ? "leaders_direct_in_turn" : "leaders_direct") << ranks;
    EXPECT_EQ(chosen(64 << 10), ranks == 4 ? "leaders_direct_in_turn" : "leaders_direct") << ranks;
    EXPECT_EQ(chosen(1 << 20), "hierarchical") << ranks;
  }
}

// Of pairs that share a core the one that comes second to a call leads it: one switch less than
// where the same one always does. It is seen in calls that follow each other in turns.
TEST(Turns, LeadersInTurnSaveASwitch) {
  Crowd crowd(4);
  const Algorithm& algorithm = **find_algorithm(Collective::all_reduce, "leaders_in_turn");
  const auto graph = [&](Rank leader) {
    return *CostGraph::make(lower_all(*build(algorithm, 4, leader, 2)), crowd.machine, false);
  };
  const CostGraph even = graph(0);
  const CostGraph odd = graph(1);
  const double always_ns = even.price(crowd.machine, 64).time_ns;
  const double in_turn_ns = even.price(crowd.machine, 64, DataIn::memory, &odd).time_ns;
  EXPECT_NEAR(always_ns - in_turn_ns, crowd.machine.constants().switch_ns, 1);
  EXPECT_EQ(even.price(crowd.machine, 64, DataIn::memory, &even).time_ns, always_ns);
}

// Ranks of one machine with two cores that talk through sockets: each has its own way into the
// network.
struct SocketCrowd {
  explicit SocketCrowd(int ranks, double bandwidth = 2) {
    TopologyBuilder builder;
    const VertexId network =
        builder.add_vertex({VertexKind::network_switch, "network", VertexId::none, {}});
    const VertexId node = builder.add_vertex({VertexKind::node, "n0", VertexId::none, {}});
    for (int rank = 0; rank < ranks; ++rank) {
      placement.push_back(
          builder.add_vertex({VertexKind::core, "core" + std::to_string(rank), node, {}}));
      builder.connect(LinkKind::network, placement.back(), network, 8000, bandwidth,
                      LinkSource::given);
      cores.push_back(rank % 2);
    }
    topology = *std::move(builder).build();
  }

  Topology topology;
  std::vector<VertexId> placement;
  std::vector<int> cores;
};

TEST(Turns, BytesOfSocketsAreWorkOfSharedCores) {
  const SocketCrowd crowd(4, 100);
  Machine apart(crowd.topology, crowd.placement);
  Machine shared(crowd.topology, crowd.placement, {}, crowd.cores);
  EXPECT_EQ(apart.sharers(0), 1);
  EXPECT_EQ(shared.sharers(0), 2);
  EXPECT_EQ(shared.processor(0), shared.processor(2));
  EXPECT_NE(shared.processor(0), shared.processor(1));
  EXPECT_EQ(shared.turn(2), 1);
  EXPECT_FALSE((*shared.route(0, 2))->shares_memory) << "sockets lead there, too";
  const auto schedule = build(**find_algorithm(Collective::broadcast, "direct"), 4, 0);
  const CostGraph graph = *CostGraph::make(lower_all(*schedule), shared, false);
  const CostConstants& c = shared.constants();
  const SliceCost none = graph.price(shared, 0);
  EXPECT_EQ(none.busiest, shared.processor(0));
  const double message_ns = c.sockets.send_ns + c.shared_socket_ns;
  EXPECT_EQ(c.sockets.send_ns, c.sockets.receive_ns);
  EXPECT_NEAR(none.busy_ns, 4 * message_ns, 10 * c.step_ns) << "three sent and one received";
  // The root reads its input once, and rank 2 writes its output; what is broadcast lies in place.
  const double bytes = 1e5;
  const double work = (4 * c.in_memory.socket + 2 * c.in_memory.near) * bytes;
  EXPECT_NEAR(graph.price(shared, bytes).busy_ns - none.busy_ns,
              work / shared.rate(shared.processor(0)) + 4 * c.sockets.payload_ns, 1);
}

// Many small messages are what costs there, so that large ones are not cut for a pipeline that
// nobody is free to keep going. Measured between eight processes on two cores: a broadcast of 1 MiB
// along trees takes 2840 us in pieces of 31 KiB and 1250 to 1400 in pieces of 120 KiB and more; an
// all_reduce of it 4165 us by halving_doubling and 2740 along trees.
TEST(Turns, SocketsOfSharedCoresCarryFewMessages) {
  const auto planner = [](bool shared) {
    SocketCrowd crowd(8);
    PlannerOptions options;
    options.frame_bytes_max = 490 << 10;
    if (shared) options.cores = crowd.cores;
    return Planner(std::move(crowd.topology), std::move(crowd.placement), options);
  };
  const PlanQuery broadcast{Collective::broadcast, 262144};
  const PlanQuery reduction{Collective::all_reduce, 262144};
  Planner shared = planner(true);
  Planner apart = planner(false);
  EXPECT_GE(shared.plan(broadcast, 0).value()->settings.slice_bytes, 120U << 10);
  EXPECT_LT(apart.plan(broadcast, 0).value()->settings.slice_bytes, 120U << 10);
  EXPECT_EQ(shared.plan(reduction, 0).value()->algorithm, "tree");
  EXPECT_EQ(apart.plan(reduction, 0).value()->algorithm, "halving_doubling");
  EXPECT_EQ(shared.plan({Collective::all_reduce, 256}, 0).value()->algorithm, "doubling");
  for (const Collective collective : kAllCollectives) {
    const Explanation told = *shared.explain({collective, 4096});
    EXPECT_GE(told.candidates.front().predicted_us, 0.999 * told.bound_us())
        << to_string(collective);
  }
}

// A call of one round through sockets costs its messages, all of them.
TEST(Turns, NoRoundOfSocketsIsCheaperThanItsMessages) {
  SocketCrowd crowd(8);
  Machine machine(crowd.topology, crowd.placement, {}, crowd.cores);
  const auto schedule = build(**find_algorithm(Collective::all_reduce, "one_shot"), 8, 0);
  EXPECT_FALSE(CostGraph::make(lower_all(*schedule), machine, false)->one_round());
}

// Two ranks with a core each, on one machine or on two; sockets either way.
struct SocketPair {
  explicit SocketPair(bool one_machine) : crowd(2, one_machine ? 40 : 2), within(one_machine) {
    crowd.cores = {0, 1};
  }
  Machine machine() const { return {crowd.topology, crowd.placement, {}, crowd.cores, within}; }
  Planner planner() {
    PlannerOptions options;
    options.frame_bytes_max = 720 << 10;
    options.cores = crowd.cores;
    options.one_machine = within;
    return {std::move(crowd.topology), std::move(crowd.placement), options};
  }

  SocketCrowd crowd;
  bool within;
};

SliceCost price_of(Machine& machine, Collective collective, std::string_view algorithm,
                   double bytes) {
  const auto schedule = build(**find_algorithm(collective, algorithm), machine.ranks(), 0);
  return CostGraph::make(lower_all(*schedule), machine, false)->price(machine, bytes);
}

// While one writes the other reads: a broadcast takes little longer than either, but for
// the latency, and never less than the sender needs.
TEST(Turns, SocketsWithinAMachineAreReadWhileTheyAreWritten) {
  const SocketPair pair(true);
  Machine within = pair.machine();
  EXPECT_TRUE((*within.route(0, 1))->streams);
  const double bytes = 1e7;
  const double work_ns = 2 * bytes / within.rate(within.processor(0));
  const SliceCost cost = price_of(within, Collective::broadcast, "direct", bytes);
  EXPECT_GE(cost.time_ns, work_ns);
  EXPECT_LT(cost.time_ns, 1.2 * work_ns);
  EXPECT_TRUE(within.is_processor(cost.busiest));
}

// Whoever reads waits for the end of what comes, be it slower than the reader.
TEST(Turns, WhatStreamsIsNotThereBeforeItsEnd) {
  const SocketCrowd slow(2, 1);
  Machine machine(slow.topology, slow.placement, {}, {0, 1}, true);
  const double bytes = 1e7;
  const SliceCost cost = price_of(machine, Collective::broadcast, "direct", bytes);
  EXPECT_GE(cost.time_ns, bytes + (*machine.route(0, 1))->latency_ns);
}

TEST(Turns, SocketsOfTwoMachinesOrOfSharedCoresAreNot) {
  const SocketPair pair(false);
  Machine between = pair.machine();
  EXPECT_FALSE((*between.route(0, 1))->streams);
  SocketCrowd crowd(4, 40);
  Machine shared(crowd.topology, crowd.placement, {}, crowd.cores, true);
  EXPECT_FALSE((*shared.route(0, 1))->streams);
  EXPECT_FALSE((*shared.route(0, 2))->streams);
}

// What a rank adds up it writes into the ring that the socket reads, too, which costs no more than
// to read it from memory. Measured between two network namespaces of a machine, an all_reduce of 1
// MiB (us) between two cores that are near each other and far: direct 158 and 217, halving_doubling
// 155 and 268.
TEST(Turns, SumsCostSocketsNoMoreThanCopies) {
  const SocketPair pair(true);
  Machine within = pair.machine();
  const double bytes = 1e6;
  const double direct = price_of(within, Collective::all_reduce, "direct", bytes).time_ns;
  const double halving =
      price_of(within, Collective::all_reduce, "halving_doubling", bytes).time_ns;
  EXPECT_LT(direct, halving);
}

// Pieces gain nothing there, as both ends' cores do all the work. Measured between two network
// namespaces of a machine, a reduce_scatter of 1 MiB (us): in one piece 105, in two 117, in five
// 133, in eight 168.
TEST(Turns, SocketsWithinAMachineCarryFewMessages) {
  Planner within = SocketPair(true).planner();
  Planner between = SocketPair(false).planner();
  for (const Collective collective :
       {Collective::reduce_scatter, Collective::all_gather, Collective::all_to_all}) {
    EXPECT_EQ(within.plan({collective, 131072}, 0).value()->settings.slice_bytes, 720U << 10);
    EXPECT_LT(between.plan({collective, 131072}, 0).value()->settings.slice_bytes, 720U << 10);
  }
}

}  // namespace
}  // namespace tutti::collectives
