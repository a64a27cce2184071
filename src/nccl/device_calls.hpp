// device_calls.hpp: whether calls belong on a CUDA stream, and putting them there.
#pragma once

#include <memory>
#include <vector>

#include "nccl/comm.hpp"

namespace tutti::nccl {

// True when the calls are on the stream now, which goes on when they are done; false when they are
// in host memory and no stream was given, and are the caller's to make at once.
// Errors  unsupported: a stream or device memory where there is no CUDA driver.
Result<bool> enqueue_on_stream(const std::shared_ptr<Comm>& comm, void* stream,
                               const std::vector<Call>& calls);

// Waits for what the communicator has on streams. Blocking.
void leave_streams(Comm& comm);

// The GPU that this thread has chosen; 0 where there is none.
int current_device();

}  // namespace tutti::nccl
