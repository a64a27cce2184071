// plans.cc: see plans.hpp.
#include "runtime/gpu/host/plans.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/try.hpp"

namespace tutti::runtime::gpu {

Result<std::unique_ptr<Plans>> Plans::make(const PlansOptions& options) {
  Result<DeviceTopology> seen =
      options.topology != nullptr
          ? Result<DeviceTopology>(*options.topology)
          : assumed_topology(options.ranks, options.ranks_per_device, options.hosts);
  TUTTI_TRY(seen);
  collectives::PlannerOptions planning;
  planning.algorithm = options.algorithm;
  planning.lowering =
      options.direct ? collectives::Lowering::automatic : collectives::Lowering::staged;
  planning.channel_count = options.channels;
  planning.frame_bytes_max = options.slot_bytes;
  planning.direct_possible = options.direct;
  planning.constants.gpu_bytes_per_ns /= options.ranks_per_device;
  collectives::Planner planner(std::move(seen->topology), std::move(seen->placement), planning);
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
