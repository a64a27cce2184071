// cuda_sharing.cc: see cuda_sharing.hpp.
#include "runtime/gpu/host/cuda_sharing.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/try.hpp"
#include "runtime/gpu/host/cuda_parts.hpp"

namespace tutti::runtime::gpu {
namespace {

namespace cuda = transport::cuda;

cuda::DevicePointer as_pointer(const void* memory) {
  return reinterpret_cast<cuda::DevicePointer>(memory);
}

}  // namespace

void CudaSharing::start(cuda::Device device, const std::string& name) {
  name_ = name;
  const auto found = cuda::find_mapping_functions();
  int maps = 0;
  if (!found.ok())
    why_no_mapping_ = found.status().message();
  else if (launch_.cuDeviceGetAttribute(&maps, cuda::kDeviceMapsMemory, device) != cuda::kSuccess ||
           maps == 0)
    why_no_mapping_ = fmt::format("{} maps no memory part by part", name_);
  else
    mapping_ = *found;
}

void CudaSharing::note_reached_by(int ordinal) {
  const std::lock_guard lock(mutex_);
  reached_by_.insert(ordinal);
}

bool CudaSharing::is_own(const void* memory) const {
  const auto place = driver_.place_of(memory);
  return place.ok() && place->device && place->ordinal == ordinal_;
}

// Memory that was made by cuMemAlloc is mapped for all peers, what comes from pools is not; the
// driver tells them apart by whether other processes could have it as a whole.
bool CudaSharing::has_handle(const void* memory) const {
  int capable = 0;
  return launch_.cuPointerGetAttribute(&capable, cuda::kPointerIsIpcCapable, as_pointer(memory)) ==
             cuda::kSuccess &&
         capable != 0;
}

bool CudaSharing::is_reachable(const void* memory, std::size_t bytes) const {
  if (!is_own(memory)) return false;
  if (has_handle(memory)) return true;
  if (!mapping_) return false;
  const std::lock_guard lock(mutex_);
  return are_parts_open_to(mapping(), static_cast<const std::byte*>(memory), bytes, reached_by_);
}

Result<Allocation> CudaSharing::allocation_of(const void* memory) const {
  cuda::DevicePointer begin = 0;
  Allocation found;
  TUTTI_TRY(driver_.check(launch_.cuMemGetAddressRange_v2(&begin, &found.bytes, as_pointer(memory)),
                          "cuMemGetAddressRange"));
  TUTTI_TRY(driver_.check(
      launch_.cuPointerGetAttribute(&found.id, cuda::kPointerBufferId, as_pointer(memory)),
      "cuPointerGetAttribute"));
  found.begin = reinterpret_cast<std::byte*>(begin);  // NOLINT(*-int-to-ptr)
  return found;
}

Result<SharedMemory> CudaSharing::share_memory(const std::byte* memory, std::size_t bytes) const {
  if (!is_own(memory))
    return Status(StatusCode::unsupported,
                  "other processes can have memory of the rank's own device only");
  if (!has_handle(memory)) {
    if (!mapping_) return Status(StatusCode::unsupported, why_no_mapping_);
    return share_cuda_parts(mapping(), ordinal_, memory, bytes);
  }
  SharedMemory shared;
  const auto allocation = allocation_of(memory);
  TUTTI_TRY(allocation);
  shared.allocation = *allocation;
  const auto handle = export_memory(allocation->begin);
  if (!handle.ok()) return Status(StatusCode::unsupported, handle.status().message());
  shared.handle = *handle;
  return shared;
}

Result<std::unique_ptr<ForeignParts>> CudaSharing::reserve_parts(std::size_t bytes) const {
  if (!mapping_) return Status(StatusCode::unsupported, why_no_mapping_);
  return reserve_cuda_parts(mapping(), ordinal_, name_, bytes);
}

Result<MemoryHandle> CudaSharing::export_memory(const std::byte* memory) const {
  cuda::IpcHandle handle = {};
  TUTTI_TRY(
      driver_.check(launch_.cuIpcGetMemHandle(&handle, as_pointer(memory)), "cuIpcGetMemHandle"));
  MemoryHandle made;
  static_assert(sizeof made == sizeof handle);
  std::memcpy(made.data(), &handle, sizeof handle);
  return made;
}

Result<std::byte*> CudaSharing::import_memory(const MemoryHandle& handle) const {
  cuda::IpcHandle opened = {};
  std::memcpy(&opened, handle.data(), sizeof opened);
  cuda::DevicePointer memory = 0;
  const Status status =
      driver_.check(launch_.cuIpcOpenMemHandle_v2(&memory, opened, cuda::kIpcEnablePeerAccess),
                    "cuIpcOpenMemHandle");
  if (!status.ok())
    return Status(StatusCode::unsupported,
                  fmt::format("{} cannot share the memory of another process's device: {}", name_,
                              status.message()));
  return reinterpret_cast<std::byte*>(memory);  // NOLINT(*-int-to-ptr)
}

void CudaSharing::forget_memory(std::byte* imported) const {
  launch_.cuIpcCloseMemHandle(as_pointer(imported));
}

}  // namespace tutti::runtime::gpu
