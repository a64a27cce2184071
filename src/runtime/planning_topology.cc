// Hosts become nodes, cores hang on their node's memory, nodes on one network. The figures are
// assumptions until a machine is measured.
#include "runtime/planning_topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::runtime {
namespace {

// Units: ns, bytes per ns and direction.
constexpr double kMemoryLatencyNs = 75;
constexpr double kMemoryBandwidth = 10;
constexpr double kSocketLatencyNs = 8000;
constexpr double kSocketBandwidth = 2;
// Within a machine nothing but its cores moves what is in sockets, and their work is told apart.
constexpr double kLocalSocketBandwidth = 40;

struct Host {
  VertexId memory = VertexId::none;
  std::set<int> cpus;             // of all its ranks
  std::vector<VertexId> seats;    // made as ranks arrive
  std::map<int, VertexId> bound;  // seats of ranks that run on one processor only, by its number
  int ranks = 0;
};

// The hosts, with the hardware threads that their ranks may use.
std::map<std::string, Host> collect(const std::vector<HostCard>& cards) {
  std::map<std::string, Host> hosts;
  for (const HostCard& card : cards)
    hosts[card.host].cpus.insert(card.cpus.begin(), card.cpus.end());
  return hosts;
}

// What the ranks of one machine have together, whatever network each of them sees.
struct Crowd {
  std::size_t ranks = 0;
  std::set<int> cpus;
};

Crowd crowd_of(const std::vector<HostCard>& cards, Rank rank) {
  const std::string_view machine = cards[static_cast<std::size_t>(rank)].machine();
  Crowd crowd;
  for (const HostCard& card : cards) {
    if (card.machine() != machine) continue;
    ++crowd.ranks;
    crowd.cpus.insert(card.cpus.begin(), card.cpus.end());
  }
  return crowd;
}

// Deals the cores of each machine out to its ranks, whatever network each of them sees: equal
// numbers are one core.
std::vector<int> deal_cores(const std::vector<HostCard>& cards) {
  std::map<std::pair<std::string, int>, int> numbers;  // by machine and processor
  std::map<std::string, std::size_t> dealt;            // ranks that may run anywhere, by machine
  std::vector<int> cores;
  int fresh = 0;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const HostCard& card = cards[rank];
    const std::string machine(card.machine());
    const Crowd crowd = crowd_of(cards, static_cast<Rank>(rank));
    if (card.cpus.size() != 1 && crowd.ranks <= crowd.cpus.size()) {
      cores.push_back(fresh++);
      continue;
    }
    int processor = 0;
    if (card.cpus.size() == 1)
      processor = card.cpus[0];
    else if (!crowd.cpus.empty())
      processor = *std::next(crowd.cpus.begin(),
                             static_cast<std::ptrdiff_t>(dealt[machine]++ % crowd.cpus.size()));
    const auto [place, is_new] = numbers.try_emplace({machine, processor}, fresh);
    if (is_new) ++fresh;
    cores.push_back(place->second);
  }
  return cores;
}

// Whether all ranks are of one machine that has a core for each.
bool each_has_a_core_of_one_machine(const std::vector<HostCard>& cards) {
  if (cards.empty()) return false;
  const Crowd crowd = crowd_of(cards, 0);
  const std::vector<int> cores = deal_cores(cards);
  return crowd.ranks == cards.size() &&
         std::set<int>(cores.begin(), cores.end()).size() == cards.size();
}

// What every link of one kind has.
struct Speed {
  double latency_ns;
  double bandwidth;
  LinkSource source = LinkSource::assumed;
};

Speed measured_or(Speed speed, const collectives::TransportFigures* figures) {
  if (figures == nullptr) return speed;
  if (figures->latency_ns || figures->bandwidth) speed.source = LinkSource::measured;
  speed.latency_ns = figures->latency_ns.value_or(speed.latency_ns);
  speed.bandwidth = figures->bandwidth.value_or(speed.bandwidth);
  return speed;
}

class Maker {
 public:
  Maker(const std::vector<HostCard>& cards, bool through_memory,
        const collectives::TransportFigures* figures)
      : through_memory_(through_memory), hosts_(collect(cards)) {
    one_machine_ = !through_memory && each_has_a_core_of_one_machine(cards);
    if (one_machine_) sockets_.bandwidth = kLocalSocketBandwidth;
    (through_memory ? memory_ : sockets_) =
        measured_or(through_memory ? memory_ : sockets_, figures);
    network_ = builder_.add_vertex({VertexKind::network_switch, "network", VertexId::none, {}});
    if (!through_memory) cores_of_ranks_ = deal_cores(cards);
    for (const HostCard& card : cards) placement_.push_back(seat(host(card.host), card.cpus));
  }

  Result<PlanningTopology> take() {
    auto topology = std::move(builder_).build();
    if (!topology.ok()) return topology.status();
    return PlanningTopology{*std::move(topology), std::move(placement_), std::move(cores_of_ranks_),
                            one_machine_};
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
    connect(LinkKind::network, host.memory, network_, sockets_);
    return host;
  }

  // Where the next rank of the host sits: on a core. Ranks that talk through sockets each have
  // their own way into the network, whatever core they run on.
  VertexId seat(Host& host, const std::vector<int>& cpus) {
    if (!through_memory_) return make_seat(host);
    if (cpus.size() == 1) {
      const auto [place, fresh] = host.bound.try_emplace(cpus[0], VertexId::none);
      if (fresh) place->second = make_seat(host);
      return place->second;
    }
    const auto cores = std::max<std::size_t>(1, host.cpus.size());
    const auto number = static_cast<std::size_t>(host.ranks++);
    if (number >= cores) return host.seats[number % cores];
    host.seats.push_back(make_seat(host));
    return host.seats.back();
  }

  VertexId make_seat(const Host& host) {
    const VertexId core =
        builder_.add_vertex({VertexKind::core, fmt::format("core{}", cores_++), host.memory, {}});
    if (through_memory_)
      connect(LinkKind::memory, core, host.memory, memory_);
    else
      connect(LinkKind::network, core, network_, sockets_);
    return core;
  }

  void connect(LinkKind kind, VertexId from, VertexId to, const Speed& speed) {
    builder_.connect(kind, from, to, speed.latency_ns, speed.bandwidth, speed.source);
  }

  bool through_memory_;
  bool one_machine_ = false;
  Speed memory_{kMemoryLatencyNs, kMemoryBandwidth};
  Speed sockets_{kSocketLatencyNs, kSocketBandwidth};
  std::map<std::string, Host> hosts_;
  TopologyBuilder builder_;
  VertexId network_ = VertexId::none;
  int nodes_ = 0;
  int cores_ = 0;
  std::vector<VertexId> placement_;
  std::vector<int> cores_of_ranks_;
};

}  // namespace

bool ranks_share_cores(const std::vector<HostCard>& cards, Rank rank) {
  const Crowd crowd = crowd_of(cards, rank);
  return crowd.ranks > crowd.cpus.size();
}

std::vector<bool> neighbours(const std::vector<HostCard>& cards, Rank rank) {
  const HostCard& mine = cards[static_cast<std::size_t>(rank)];
  if (mine.cpus.size() != 1) return {};
  std::vector<bool> found(cards.size(), false);
  bool any = false;
  for (std::size_t other = 0; other < cards.size(); ++other) {
    if (static_cast<Rank>(other) == rank || cards[other].machine() != mine.machine()) continue;
    found[other] = cards[other].cpus == mine.cpus;
    any |= found[other];
  }
  return any ? found : std::vector<bool>();
}

int cores_shared(const std::vector<HostCard>& cards, Rank rank) {
  const Crowd crowd = crowd_of(cards, rank);
  return static_cast<int>(std::min(std::max<std::size_t>(1, crowd.cpus.size()), crowd.ranks));
}

Result<PlanningTopology> planning_topology(const std::vector<HostCard>& cards, bool through_memory,
                                           const collectives::TransportFigures* figures) {
  return Maker(cards, through_memory, figures).take();
}

}  // namespace tutti::runtime
