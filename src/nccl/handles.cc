// handles.cc: see handles.hpp.
#include "nccl/handles.hpp"

#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

namespace {
constexpr std::uint64_t kMagic = 0x7475747469636f6dULL;
}  // namespace

// The type that nccl.h leaves open.
struct ncclComm {
  const std::uint64_t magic = kMagic;
  std::mutex mutex;
  std::shared_ptr<tutti::nccl::Comm> comm;
};

namespace tutti::nccl {
namespace {

struct Handles {
  std::mutex mutex;
  std::deque<ncclComm> all;
};

// Never destroyed: threads of the program may outlive static objects.
Handles& handles() {
  static auto* const all = new Handles;
  return *all;
}

template <typename Take>
Result<std::shared_ptr<Comm>> look_up(ncclComm_t handle, const Take& take) {
  if (handle == nullptr) return Status(StatusCode::invalid_argument, "the communicator is null");
  if (handle->magic != kMagic)
    return Status(StatusCode::invalid_argument, "this is no communicator");
  const std::lock_guard lock(handle->mutex);
  if (!handle->comm)
    return Status(StatusCode::invalid_argument, "the communicator was destroyed or aborted before");
  return take(handle->comm);
}

}  // namespace

ncclComm_t give_handle(std::shared_ptr<Comm> comm) {
  const std::lock_guard lock(handles().mutex);
  ncclComm& made = handles().all.emplace_back();
  made.comm = std::move(comm);
  return &made;
}

Result<std::shared_ptr<Comm>> find_comm(ncclComm_t handle) {
  return look_up(handle, [](std::shared_ptr<Comm>& comm) { return comm; });
}

Result<std::shared_ptr<Comm>> take_comm(ncclComm_t handle) {
  return look_up(handle, [](std::shared_ptr<Comm>& comm) { return std::exchange(comm, nullptr); });
}

}  // namespace tutti::nccl
