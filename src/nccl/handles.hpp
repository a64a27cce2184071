// handles.hpp: the pointers that callers hold, and what they stand for.
//
// A handle's own few bytes are never freed or used again, so that one that was given back is an
// error and not a crash.
#pragma once

#include <memory>

#include "nccl/comm.hpp"
#include "tutti/nccl.h"

namespace tutti::nccl {

ncclComm_t give_handle(std::shared_ptr<Comm> comm);

// Errors  invalid_argument: null, or one that was destroyed or aborted.
Result<std::shared_ptr<Comm>> find_comm(ncclComm_t handle);

// The same, and from now on it stands for nothing.
Result<std::shared_ptr<Comm>> take_comm(ncclComm_t handle);

}  // namespace tutti::nccl
