// Hosts become nodes, cores hang on their node's memory, nodes on one network. The figures are
// assumptions until a machine is measured.
#include "runtime/planning_topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace tutti::runtime {
namespace {

// Units: ns, bytes per ns and direction.
constexpr double kMemoryLatencyNs = 75;
constexpr double kMemoryBandwidth = 10;
constexpr double kSocketLatencyNs = 8000;
constexpr double kSocketBandwidth = 2;

struct Host {
  VertexId memory = VertexId::none;
  std::set<int> cpus;           // of all its ranks
  std::vector<VertexId> seats;  // made as ranks arrive
  int ranks = 0;
};

// The hosts, with the hardware threads that their ranks may use.
std::map<std::string, Host> collect(const std::vector<HostCard>& cards) {
  std::map<std::string, Host> hosts;
  for (const HostCard& card : cards)
    hosts[card.host].cpus.insert(card.cpus.begin(), card.cpus.end());
  return hosts;
}

class Maker {
 public:
  Maker(const std::vector<HostCard>& cards, bool through_memory)
      : through_memory_(through_memory), hosts_(collect(cards)) {
    network_ = builder_.add_vertex({VertexKind::network_switch, "network", VertexId::none, {}});
    for (const HostCard& card : cards) placement_.push_back(seat(host(card.host)));
  }

  Result<PlanningTopology> take() {
    auto topology = std::move(builder_).build();
    if (!topology.ok()) return topology.status();
    return PlanningTopology{*std::move(topology), std::move(placement_)};
  }

 private:
  // Nodes are numbered in the order of their first rank.
  Host& host(const std::string& name) {
    Host& host = hosts_[name];
    if (host.memory != VertexId::none) return host;
    const int number = nodes_++;
    const VertexId node =
        builder_.add_vertex({VertexKind::node, fmt::format("n{}", number), VertexId::none, {}});
    host.memory =
        builder_.add_vertex({VertexKind::numa, fmt::format("n{}/memory", number), node, {}});
    builder_.connect(LinkKind::network, host.memory, network_, kSocketLatencyNs, kSocketBandwidth,
                     LinkSource::assumed);
    return host;
  }

  // The core that the next rank of the host sits on. Ranks that talk through sockets each have
  // their own way into the network, whatever core they run on.
  VertexId seat(Host& host) {
    const auto cores = std::max<std::size_t>(1, host.cpus.size());
    const auto number = static_cast<std::size_t>(host.ranks++);
    if (through_memory_ && number >= cores) return host.seats[number % cores];
    const VertexId core =
        builder_.add_vertex({VertexKind::core, fmt::format("core{}", cores_++), host.memory, {}});
    if (through_memory_)
      builder_.connect(LinkKind::memory, core, host.memory, kMemoryLatencyNs, kMemoryBandwidth,
                       LinkSource::assumed);
    else
      builder_.connect(LinkKind::network, core, network_, kSocketLatencyNs, kSocketBandwidth,
                       LinkSource::assumed);
    host.seats.push_back(core);
    return core;
  }

  bool through_memory_;
  std::map<std::string, Host> hosts_;
  TopologyBuilder builder_;
  VertexId network_ = VertexId::none;
  int nodes_ = 0;
  int cores_ = 0;
  std::vector<VertexId> placement_;
};

}  // namespace

bool ranks_share_cores(const std::vector<HostCard>& cards, Rank rank) {
  const std::string& host = cards[static_cast<std::size_t>(rank)].host;
  const auto ranks = std::count_if(cards.begin(), cards.end(),
                                   [&](const HostCard& card) { return card.host == host; });
  return ranks > static_cast<std::ptrdiff_t>(collect(cards)[host].cpus.size());
}

Result<PlanningTopology> planning_topology(const std::vector<HostCard>& cards,
                                           bool through_memory) {
  return Maker(cards, through_memory).take();
}

}  // namespace tutti::runtime
