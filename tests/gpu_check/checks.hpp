// checks.hpp: whether device calls are right on a device: their results, graphs, failure, refusal.
//
// Knows devices only as device.hpp tells them, so that the checks themselves are tested without.
#pragma once

#include <vector>

#include "gpu_check/report.hpp"
#include "gpu_world/stage.hpp"
#include "runtime/gpu/host/world.hpp"

namespace tutti::gpu_check {

// How much is done.
struct Extent {
  std::vector<int> ranks;           // that share the device, from few to many
  std::vector<std::size_t> counts;  // of which all combinations are tried, but one in `one_in`
  int one_in = 1;
  std::vector<std::size_t> large;  // the same for large ones
  int large_one_in = 1;
  double limit_s = 180;              // for the results
  int failures_max = 5;              // no more cases after so many
  runtime::gpu::GpuOptions options;  // of worlds
};

// Every case for so many ranks, in one order, but of each collective only one in so many.
std::vector<runtime::gpu::StageCase> cases_of(int ranks, const std::vector<std::size_t>& counts,
                                              int one_in);

void check_results(runtime::gpu::Device& device, const Extent& extent, Report& report);
void check_graphs(runtime::gpu::Device& device, const Extent& extent, Report& report);
// Calls of all ranks in one graph.
void check_joint_graphs(runtime::gpu::Device& device, const Extent& extent, Report& report);
// What pairs of ranks send each other.
void check_transfers(runtime::gpu::Device& device, const Extent& extent, Report& report);
void check_abort(runtime::gpu::Device& device, const Extent& extent, Report& report);
void check_deadline(runtime::gpu::Device& device, const Extent& extent, Report& report);
void check_refusal(runtime::gpu::Device& device, const Extent& extent, Report& report);
// Ranks on all devices in turn.
void check_devices(const std::vector<runtime::gpu::Device*>& devices, const Extent& extent,
                   Report& report);

}  // namespace tutti::gpu_check
