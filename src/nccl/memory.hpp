// memory.hpp: memory that the library gives to callers, and memory that they register with it.
//
// Registering is a hint: calls work with any memory, and are quicker with memory that every rank of
// the host can reach. What cannot be made so stays as it is. A device's memory is mapped by the
// communicator's peers until it is deregistered, or the communicator goes.
#pragma once

#include <cstddef>
#include <memory>

#include "nccl/comm.hpp"
#include "tutti/nccl.h"

namespace tutti::nccl {

// Of the device that this thread has chosen (device_memory.hpp); host memory that all ranks of this
// host can reach where it has not. Null: of 0 bytes. Errors  system_error: no memory is left.
Result<void*> allocate_memory(std::size_t bytes);
// Null is nothing. Errors  invalid_argument: not from allocate_memory(), or freed before.
Status free_memory(void* memory);

// Errors  invalid_argument: no memory.
Result<void*> register_buffer(const std::shared_ptr<Comm>& comm, void* memory, std::size_t bytes);
// Null is nothing. Blocking  until peers have let go of it. Errors  invalid_argument: no such
// handle of this communicator, or given back before; timeout: a call that may use it is under way,
// or a peer is stopped.
Status deregister_buffer(Comm& comm, void* handle);

Result<ncclWindow_t> register_window(const std::shared_ptr<Comm>& comm, void* memory,
                                     std::size_t bytes, int flags);
// Blocking, errors  as deregister_buffer().
Status deregister_window(Comm& comm, ncclWindow_t window);
// Errors  invalid_argument: no such window of this communicator.
Result<void*> window_memory(const Comm& comm, ncclWindow_t window);

}  // namespace tutti::nccl
