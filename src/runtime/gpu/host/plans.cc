// plans.cc: see plans.hpp.
#include "runtime/gpu/host/plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/try.hpp"

namespace tutti::runtime::gpu {
namespace {

// Assumed, until one is measured: bytes per ns that the ranks of one device can move together, and
// one of them through a link between devices.
constexpr double kDeviceBandwidth = 1500;
constexpr double kLinkBandwidth = 450;
constexpr double kHostBandwidth = 5;  // of a host's carrier to others: one thread copies it

// How many hosts there are of equally many consecutive ranks. Where they are not like that, every
// rank counts as a host: that is slower than what could be, and right.
int hosts_alike(const std::vector<int>& hosts) {
  if (hosts.empty()) return 1;
  const auto ranks = static_cast<int>(hosts.size());
  const auto end =
      std::find_if(hosts.begin(), hosts.end(), [&](int host) { return host != hosts.front(); });
  const auto size = static_cast<int>(end - hosts.begin());
  if (ranks % size != 0) return ranks;
  std::set<int> seen;
  for (int first = 0; first < ranks; first += size) {
    const auto begin = hosts.begin() + first;
    if (!seen.insert(*begin).second ||
        std::any_of(begin, begin + size, [&](int host) { return host != *begin; }))
      return ranks;
  }
  return ranks / size;
}

// Every rank on a seat of its own, also where several share a device: they run beside each other
// there, each with its share of the processors and of the memory's bandwidth.
Result<Topology> topology_of(const PlansOptions& options) {
  const double share =
      options.ranks_per_device > 1 ? kDeviceBandwidth / options.ranks_per_device : kLinkBandwidth;
  const int hosts = hosts_alike(options.hosts);
  if (hosts == 1)
    return parse_synthetic_topology(fmt::format("1x{} nvlink={}", options.ranks, share));
  return parse_synthetic_topology(
      fmt::format("{}x{} nvlink={} nic={}", hosts, options.ranks / hosts, share, kHostBandwidth));
}

}  // namespace

Result<std::unique_ptr<Plans>> Plans::make(const PlansOptions& options) {
  auto topology = topology_of(options);
  TUTTI_TRY(topology);
  std::vector<VertexId> placement = seats(*topology, SeatKind::gpu);
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
