// device_calls.cc: see device_calls.hpp.
#include "nccl/device_calls.hpp"

#include <fmt/format.h>

namespace tutti::nccl {

Result<bool> enqueue_on_stream(const std::shared_ptr<Comm>& comm, void* stream,
                               const std::vector<Call>& calls) {
  if (stream == nullptr) return false;
  return Status(StatusCode::unsupported,
                fmt::format("rank {}: {}: a CUDA stream was given, and there is no CUDA driver "
                            "here; calls in host memory take a null stream",
                            comm->rank(), to_string(calls.front().kind)));
}

void leave_streams(Comm&) {}

int current_device() { return 0; }

}  // namespace tutti::nccl
