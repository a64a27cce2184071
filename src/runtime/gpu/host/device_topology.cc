// device_topology.cc: see device_topology.hpp.
#include "runtime/gpu/host/device_topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "base/try.hpp"

namespace tutti::runtime::gpu {
namespace {

// Assumed, until one is measured: bytes per ns that the ranks of one device can move together, and
// one of them through a link between devices.
constexpr double kDeviceBandwidth = 1500;
constexpr double kLinkBandwidth = 450;
constexpr double kHostBandwidth = 5;  // of a host's carrier to others: one thread copies it
// Between processes of hosts in one network, and into a host's memory.
constexpr double kCarrierLatencyNs = 8000;
constexpr double kCarrierMemoryNs = 150;

// Where ranks sit on hosts that all have room for as many as the fullest one.
struct Seating {
  int hosts = 1;
  int seats = 1;                 // of each host
  std::vector<std::size_t> all;  // by rank, over all hosts
};

Seating seating_of(int ranks, std::span<const int> host_of) {
  std::map<int, std::pair<int, int>> hosts;  // by number: which it is, and how many ranks it has
  std::vector<std::pair<int, int>> places;   // by rank: host, and seat there
  for (Rank rank = 0; rank < ranks; ++rank) {
    const int number = host_of.empty() ? 0 : host_of[static_cast<std::size_t>(rank)];
    auto& [host, seats] =
        hosts.try_emplace(number, static_cast<int>(hosts.size()), 0).first->second;
    places.emplace_back(host, seats++);
  }
  Seating seating;
  seating.hosts = static_cast<int>(hosts.size());
  for (const auto& [number, host] : hosts) seating.seats = std::max(seating.seats, host.second);
  for (const auto& [host, seat] : places)
    seating.all.push_back(static_cast<std::size_t>(host * seating.seats + seat));
  return seating;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Vertices of several descriptions in one topology.
class Merger {
 public:
  explicit Merger(bool several) : several_(several) {
    if (several)
      network_ = builder_.add_vertex({VertexKind::network_switch, "between", VertexId::none, {}});
  }

  void add(const Topology& host) {
    const std::size_t number = ids_.size();
    std::vector<VertexId>& ids = ids_.emplace_back();
    gpus_.emplace_back();
    for (Vertex vertex : host.vertices()) {
      if (several_) vertex.name = fmt::format("h{}/{}", number, vertex.name);
      if (vertex.parent != VertexId::none) vertex.parent = ids[index_of(vertex.parent)];
      const bool is_gpu = vertex.kind == VertexKind::gpu;
      const auto bus_id = vertex.info.find("pci");
      const std::string key = is_gpu && bus_id != vertex.info.end() ? lower(bus_id->second) : "";
      ids.push_back(builder_.add_vertex(std::move(vertex)));
      if (!key.empty()) gpus_.back().emplace(key, ids.back());
    }
    for (Link link : host.links()) {
      link.a = ids[index_of(link.a)];
      link.b = ids[index_of(link.b)];
      builder_.add_link(link);
    }
    if (several_) add_carrier(host, number);
  }

  // None: no such GPU is described.
  VertexId find(const DevicePlace& place) const {
    const auto found = gpus_[place.host].find(lower(place.bus_id));
    return found == gpus_[place.host].end() ? VertexId::none : found->second;
  }

  Result<Topology> take() { return std::move(builder_).build(); }

 private:
  // Its processor's way to the others begins in the first memory, or else where the host does.
  void add_carrier(const Topology& host, std::size_t number) {
    const std::vector<VertexId> memories = host.of_kind(VertexKind::numa);
    const std::vector<VertexId> nodes = host.of_kind(VertexKind::node);
    const VertexId home = ids_[number][index_of(memories.empty() ? nodes.front() : memories[0])];
    const VertexId carrier =
        builder_.add_vertex({VertexKind::nic, fmt::format("h{}/carrier", number), home, {}});
    builder_.connect(LinkKind::pcie, home, carrier, kCarrierMemoryNs, kHostBandwidth,
                     LinkSource::assumed);
    builder_.connect(LinkKind::network, carrier, network_, kCarrierLatencyNs, kHostBandwidth,
                     LinkSource::assumed);
  }

  const bool several_;
  TopologyBuilder builder_;
  VertexId network_ = VertexId::none;
  std::vector<std::vector<VertexId>> ids_;             // by host
  std::vector<std::map<std::string, VertexId>> gpus_;  // the same, and by bus id
};

Status check_connected(const DeviceTopology& made) {
  for (std::size_t to = 1; to < made.placement.size(); ++to)
    for (std::size_t from = 0; from < to; ++from)
      if (!find_path(made.topology, made.placement[from], made.placement[to]).ok())
        return Status(StatusCode::unsupported,
                      fmt::format("nothing connects the GPUs of ranks {} and {}", from, to));
  return Status();
}

}  // namespace

Result<DeviceTopology> assumed_topology(int ranks, int ranks_per_device,
                                        std::span<const int> hosts) {
  const Seating seating = seating_of(ranks, hosts);
  const double share = ranks_per_device > 1 ? kDeviceBandwidth / ranks_per_device : kLinkBandwidth;
  const std::string nic = seating.hosts > 1 ? fmt::format(" nic={}", kHostBandwidth) : "";
  auto topology = parse_synthetic_topology(
      fmt::format("{}x{} nvlink={}{}", seating.hosts, seating.seats, share, nic));
  TUTTI_TRY(topology);
  DeviceTopology made{*std::move(topology), {}};
  const std::vector<VertexId> seats_there = seats(made.topology, SeatKind::gpu);
  for (const std::size_t seat : seating.all) made.placement.push_back(seats_there[seat]);
  return made;
}

Result<DeviceTopology> described_topology(std::span<const Topology> hosts,
                                          std::span<const DevicePlace> ranks) {
  Merger merger(hosts.size() > 1);
  for (const Topology& host : hosts) merger.add(host);
  DeviceTopology made;
  std::map<VertexId, std::size_t> rank_of;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const VertexId gpu = merger.find(ranks[rank]);
    if (gpu == VertexId::none)
      return Status(StatusCode::unsupported,
                    fmt::format("rank {}'s GPU at {} is not described", rank, ranks[rank].bus_id));
    const auto [other, is_new] = rank_of.emplace(gpu, rank);
    if (!is_new)
      return Status(StatusCode::unsupported, fmt::format("ranks {} and {} share a GPU at {}",
                                                         other->second, rank, ranks[rank].bus_id));
    made.placement.push_back(gpu);
  }
  auto topology = merger.take();
  TUTTI_TRY(topology);
  made.topology = *std::move(topology);
  TUTTI_TRY(check_connected(made));
  return made;
}

}  // namespace tutti::runtime::gpu
