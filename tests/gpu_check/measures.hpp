// measures.hpp: how quick device calls are, beside what the device can do at all: rates as a share
// of the rate at which it copies its own memory, and latencies.
//
// Knows devices only as device.hpp tells them. Decides nothing: no figure is right or wrong.
#pragma once

#include <cstddef>
#include <vector>

#include "gpu_check/report.hpp"
#include "runtime/gpu/host/world.hpp"

namespace tutti::gpu_check {

struct Measuring {
  std::vector<int> ranks;              // that share the device
  std::vector<std::size_t> bytes;      // of the larger buffer of a rank
  std::vector<std::size_t> latencies;  // sizes for which launches and replays are compared
  std::size_t copy_bytes = 0;          // for the rate of copies
  std::size_t work_bytes = 0;          // a figure is of calls that move about so much together
  int calls_max = 100;                 // and no more than these
  runtime::gpu::GpuOptions options;
};

// Units: bytes per ns. Of bytes that are copied: each is read once and written once.
Result<double> copy_rate(runtime::gpu::Device& device, std::size_t bytes);

void measure(runtime::gpu::Device& device, const Measuring& extent, Report& report);

}  // namespace tutti::gpu_check
