// memory.cc: see memory.hpp.
#include "nccl/memory.hpp"

#include <map>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/device_memory.hpp"
#include "nccl/memory_kind.hpp"
#include "nccl/process.hpp"

// The type that nccl.h leaves open.
struct ncclWindow_vidmem {
  const tutti::nccl::Comm* comm;
  void* memory;
  std::uint64_t registration;
};

namespace tutti::nccl {
namespace {

struct Registered {
  const Comm* comm = nullptr;
  std::uint64_t registration = 0;  // with the ranks of its devices; 0: none
};

// What callers hold.
struct Holdings {
  std::mutex mutex;
  std::map<void*, std::optional<DeviceMemory>> allocated;   // none: host memory
  std::map<void*, std::unique_ptr<Registered>> registered;  // by handle
  std::map<ncclWindow_t, std::unique_ptr<ncclWindow_vidmem>> windows;
};

// Never destroyed: threads of the program may outlive static objects.
Holdings& holdings() {
  static auto* const all = new Holdings;
  return *all;
}

Status refuse(const char* what) { return {StatusCode::invalid_argument, what}; }

Status check_range(const void* memory, std::size_t bytes) {
  if (memory == nullptr) return refuse("the buffer is null");
  if (bytes == 0) return refuse("a buffer of 0 bytes cannot be registered");
  return Status();
}

// For what it is worth: see the head of the header. The registration of a device's memory, or 0.
std::uint64_t share(Comm& comm, const void* memory, std::size_t bytes) {
  const auto kind = memory_kind_of(loaded_driver(), memory);
  if (!kind.ok()) return 0;
  if (kind->device)
    return comm.phase() == Comm::Phase::ready
               ? comm.device_side().register_memory(comm.rank(), memory, bytes)
               : 0;
  if (const Status shared = register_memory(memory, bytes); !shared.ok())
    log().info(fmt::format("calls copy through queues: {}", shared.to_string()));
  return 0;
}

// Also of a communicator that was finalized: peers have its memory mapped until it goes.
Status unshare(Comm& comm, std::uint64_t registration) {
  if (comm.phase() == Comm::Phase::making) return Status();
  return comm.device_side().deregister_memory(comm.rank(), registration);
}

}  // namespace

Result<void*> allocate_memory(std::size_t bytes) {
  // As cudaMalloc has it, and NCCL: programs work out how much they need, and it may be nothing.
  if (bytes == 0) return static_cast<void*>(nullptr);
  const DevicePlace place = current_device();
  std::optional<DeviceMemory> of_device;
  if (place.context != nullptr) {
    auto made = DeviceMemory::make(*loaded_driver(), place.ordinal, place.context, bytes);
    TUTTI_TRY(made);
    of_device = *std::move(made);
  }
  void* const memory = of_device ? of_device->data() : allocate(bytes);
  if (memory == nullptr)
    return Status(StatusCode::system_error, fmt::format("no memory for {} bytes is left", bytes));
  const std::lock_guard lock(holdings().mutex);
  holdings().allocated[memory] = std::move(of_device);
  return memory;
}

Status free_memory(void* memory) {
  if (memory == nullptr) return Status();
  std::optional<DeviceMemory> of_device;
  {
    const std::lock_guard lock(holdings().mutex);
    const auto found = holdings().allocated.find(memory);
    if (found == holdings().allocated.end())
      return Status(StatusCode::invalid_argument,
                    fmt::format("{} did not come from ncclMemAlloc, or was freed before", memory));
    of_device = std::move(found->second);
    holdings().allocated.erase(found);
  }
  if (!of_device) return deallocate(memory), Status();
  return of_device->free();
}

Result<void*> register_buffer(const std::shared_ptr<Comm>& comm, void* memory, std::size_t bytes) {
  TUTTI_TRY(check_range(memory, bytes));
  auto made = std::make_unique<Registered>();
  made->comm = comm.get();
  made->registration = share(*comm, memory, bytes);
  void* const handle = made.get();
  const std::lock_guard lock(holdings().mutex);
  holdings().registered[handle] = std::move(made);
  return handle;
}

Status deregister_buffer(Comm& comm, void* handle) {
  if (handle == nullptr) return Status();
  std::uint64_t registration = 0;
  {
    const std::lock_guard lock(holdings().mutex);
    const auto found = holdings().registered.find(handle);
    if (found == holdings().registered.end() || found->second->comm != &comm)
      return refuse(
          "this is no handle of ncclCommRegister of this communicator, or was given back before");
    registration = found->second->registration;
    holdings().registered.erase(found);
  }
  return unshare(comm, registration);
}

Result<ncclWindow_t> register_window(const std::shared_ptr<Comm>& comm, void* memory,
                                     std::size_t bytes, int flags) {
  TUTTI_TRY(check_range(memory, bytes));
  constexpr int kKnown = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING | NCCL_WIN_GIN_ONLY;
  if ((flags & ~kKnown) != 0)
    return Status(StatusCode::invalid_argument, fmt::format("{:#x} is no flag of a window", flags));
  auto window = std::make_unique<ncclWindow_vidmem>(
      ncclWindow_vidmem{comm.get(), memory, share(*comm, memory, bytes)});
  const ncclWindow_t handle = window.get();
  const std::lock_guard lock(holdings().mutex);
  holdings().windows[handle] = std::move(window);
  return handle;
}

Status deregister_window(Comm& comm, ncclWindow_t window) {
  std::uint64_t registration = 0;
  {
    const std::lock_guard lock(holdings().mutex);
    const auto found = holdings().windows.find(window);
    if (found == holdings().windows.end() || found->second->comm != &comm)
      return refuse("this is no window of this communicator, or was given back before");
    registration = found->second->registration;
    holdings().windows.erase(found);
  }
  return unshare(comm, registration);
}

Result<void*> window_memory(const Comm& comm, ncclWindow_t window) {
  const std::lock_guard lock(holdings().mutex);
  const auto found = holdings().windows.find(window);
  if (found == holdings().windows.end() || found->second->comm != &comm)
    return refuse("this is no window of this communicator, or was given back before");
  return found->second->memory;
}

}  // namespace tutti::nccl
