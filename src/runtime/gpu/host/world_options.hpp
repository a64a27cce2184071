// world_options.hpp: what both ways to a device world (world.cc, world_join.cc) make of its
// options.
#pragma once

#include "runtime/gpu/host/world.hpp"

namespace tutti::runtime::gpu {

// Errors  invalid_argument: these cannot be, whatever the devices are.
Status check_options(const GpuOptions& options);

ControlShape shape_of(const GpuOptions& options, std::size_t ranks, int channels);

}  // namespace tutti::runtime::gpu
