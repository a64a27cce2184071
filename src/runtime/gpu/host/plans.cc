// plans.cc: see plans.hpp.
#include "runtime/gpu/host/plans.hpp"

#include <fmt/format.h>

#include <algorithm>
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

// Where ranks sit on hosts that all have room for as many as the fullest one.
struct Seating {
  int hosts = 1;
  int seats = 1;                 // of each host
  std::vector<std::size_t> all;  // by rank, over all hosts
};

Seating seating_of(const PlansOptions& options) {
  std::map<int, std::pair<int, int>> hosts;  // by number: which it is, and how many ranks it has
  std::vector<std::pair<int, int>> places;   // by rank: host, and seat there
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    const int number = options.hosts.empty() ? 0 : options.hosts[static_cast<std::size_t>(rank)];
    auto& [host, ranks] =
        hosts.try_emplace(number, static_cast<int>(hosts.size()), 0).first->second;
    places.emplace_back(host, ranks++);
  }
  Seating seating;
  seating.hosts = static_cast<int>(hosts.size());
  for (const auto& [number, host] : hosts) seating.seats = std::max(seating.seats, host.second);
  for (const auto& [host, seat] : places)
    seating.all.push_back(static_cast<std::size_t>(host * seating.seats + seat));
  return seating;
}

// Every rank on a seat of its own, also where several share a device: they run beside each other
// there, each with its share of the processors and of the memory's bandwidth.
Result<Topology> topology_of(const PlansOptions& options, const Seating& seating) {
  const double share =
      options.ranks_per_device > 1 ? kDeviceBandwidth / options.ranks_per_device : kLinkBandwidth;
  const std::string nic = seating.hosts > 1 ? fmt::format(" nic={}", kHostBandwidth) : "";
  return parse_synthetic_topology(
      fmt::format("{}x{} nvlink={}{}", seating.hosts, seating.seats, share, nic));
}

}  // namespace

Result<std::unique_ptr<Plans>> Plans::make(const PlansOptions& options) {
  const Seating seating = seating_of(options);
  auto topology = topology_of(options, seating);
  TUTTI_TRY(topology);
  const std::vector<VertexId> seats_there = seats(*topology, SeatKind::gpu);
  std::vector<VertexId> placement;
  for (const std::size_t seat : seating.all) placement.push_back(seats_there[seat]);
  collectives::PlannerOptions planning;
  planning.algorithm = options.algorithm;
  planning.lowering =
      options.direct ? collectives::Lowering::automatic : collectives::Lowering::staged;
  planning.channel_count = options.channels;
  planning.frame_bytes_max = options.slot_bytes;
  planning.direct_possible = options.direct;
  planning.constants.gpu_bytes_per_ns /= options.ranks_per_device;
  collectives::Planner planner(*std::move(topology), std::move(placement), planning);
  return std::unique_ptr<Plans>(new Plans(options, std::move(planner)));
}

Result<WorldPlan> Plans::find(const collectives::PlanQuery& query) {
  const std::lock_guard lock(mutex_);
  const auto first = planner_.plan(query, 0);
  TUTTI_TRY(first);
  const collectives::Plan& plan = **first;
  auto found = programs_.find(plan.program.get());
  if (found == programs_.end()) {
    auto encoded = encode_all(query, plan);
    TUTTI_TRY(encoded);
    found = programs_.emplace(plan.program.get(), *std::move(encoded)).first;
  }
  return WorldPlan{found->second, plan.hash, plan.settings.direct};
}

Result<std::shared_ptr<const WorldPrograms>> Plans::encode_all(const collectives::PlanQuery& query,
                                                               const collectives::Plan& first) {
  std::vector<collectives::LoweredProgram> lowered;
  for (Rank rank = 0; rank < ranks_; ++rank) {
    const auto plan = planner_.plan(query, rank);
    TUTTI_TRY(plan);
    lowered.push_back(*(*plan)->program);
  }
  auto encoded = encode(lowered);
  if (!encoded.ok())
    return encoded.status().with_context(
        fmt::format("{} by {}", to_string(query.collective), first.algorithm));
  auto programs = std::make_shared<WorldPrograms>();
  programs->algorithm = first.algorithm;
  programs->origin = first.program;
  programs->programs = *std::move(encoded);
  return std::shared_ptr<const WorldPrograms>(std::move(programs));
}

}  // namespace tutti::runtime::gpu
