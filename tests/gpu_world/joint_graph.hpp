// joint_graph.hpp: one graph of what several streams of a device do, as a program has it that
// captures a step of all its ranks: the other streams fork from the first one, and join it.
//
// Knows nothing of ranks or calls.
#pragma once

#include <functional>
#include <span>

#include "runtime/gpu/host/device.hpp"

namespace tutti::runtime::gpu {

// What `enqueue` puts on the streams, captured from the first. The caller has it destroyed.
// Requires  one stream at least, and nothing that is being captured on any.
// Errors  unsupported: the device does not capture streams together; and those of `enqueue`.
Result<GraphHandle> capture_jointly(Device& device, std::span<const StreamHandle> streams,
                                    const std::function<Status()>& enqueue);

}  // namespace tutti::runtime::gpu
