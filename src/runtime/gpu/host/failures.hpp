// failures.hpp: what a kernel wrote down about its failure, as a Status that names the rank, the
// step and the one that is missing.
//
// Knows nothing of devices.
#pragma once

#include "runtime/gpu/device_world.hpp"
#include "tutti/status.hpp"

namespace tutti::runtime::gpu {

// Requires  error.why is not none.
Status status_of(const ErrorRecord& error, Rank rank);

}  // namespace tutti::runtime::gpu
