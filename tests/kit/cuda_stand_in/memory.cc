// memory.cc: see memory.hpp.
#include "kit/cuda_stand_in/memory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace stand_in {
namespace {

constexpr std::size_t kPage = 4096;
// What is in fresh memory, up to so many bytes: to fill more would take memory that nobody uses.
constexpr int kGarbage = 0xa5;
constexpr std::size_t kGarbageBytes = 16 << 20;

std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

// An owner that is just looking has the lock for itself, and gives it back at once.
void note_use(int file) {
  while (flock(file, LOCK_SH) != 0 && errno == EINTR) continue;
}

Memory& Memory::instance() {
  static Memory& memory = *new Memory;
  return memory;
}

void Memory::add(const Allocation& allocation) {
  std::lock_guard lock(mutex_);
  allocations_[allocation.begin] = allocation;
  allocations_[allocation.begin].id = ++last_id_;
}

// Maps what `made.file` is, twice, and has the file from then on. Under the lock from the mapping
// on, so that no kernel begins or ends between it and the list.
std::uintptr_t Memory::map_device(Allocation made) {
  const std::lock_guard lock(mutex_);
  void* const hidden =
      mmap(nullptr, made.mapped_bytes, kernels_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
           MAP_SHARED, made.file, 0);
  void* const reachable =
      mmap(nullptr, made.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.file, 0);
  if (hidden == MAP_FAILED || reachable == MAP_FAILED) {
    if (hidden != MAP_FAILED) munmap(hidden, made.mapped_bytes);
    close(made.file);
    return 0;
  }
  made.begin = address_of(hidden);
  made.reachable = static_cast<std::byte*>(reachable);
  made.id = ++last_id_;
  allocations_[made.begin] = made;
  return made.begin;
}

std::uintptr_t Memory::allocate_device(Context context, int ordinal, std::size_t bytes,
                                       bool pooled) {
  const std::size_t mapped = whole_pages(bytes);
  const int file = memfd_create("cuda-stand-in", MFD_CLOEXEC);
  if (file < 0) return 0;
  if (ftruncate(file, static_cast<off_t>(mapped)) != 0) {
    close(file);
    return 0;
  }
  const std::uintptr_t begin = map_device(
      {0, bytes, mapped, Kind::device, ordinal, context, nullptr, pooled, file, false, 0, 0, 0});
  if (begin != 0) std::memset(reach(begin, 1), kGarbage, std::min(mapped, kGarbageBytes));
  return begin;
}

std::uintptr_t Memory::import_device(Context context, int ordinal, int owner, int file) {
  const std::string path = "/proc/" + std::to_string(owner) + "/fd/" + std::to_string(file);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return 0;
  struct stat status = {};
  if (fstat(opened, &status) != 0 || status.st_size <= 0) {
    close(opened);
    return 0;
  }
  note_use(opened);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  return map_device(
      {0, bytes, bytes, Kind::device, ordinal, context, nullptr, false, opened, true, 0, 0, 0});
}

void* Memory::allocate_host(Context context, int ordinal, std::size_t bytes) {
  const std::size_t mapped = whole_pages(bytes);
  void* const memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memset(memory, kGarbage, std::min(mapped, kGarbageBytes));
  add({address_of(memory), bytes, mapped, Kind::allocated, ordinal, context,
       static_cast<std::byte*>(memory), false, -1, false, 0, 0, 0});
  return memory;
}

bool Memory::register_host(Context context, int ordinal, void* memory, std::size_t bytes) {
  if (find(address_of(memory))) return false;
  add({address_of(memory), bytes, 0, Kind::registered, ordinal, context,
       static_cast<std::byte*>(memory), false, -1, false, 0, 0, 0});
  return true;
}

bool Memory::release(std::uintptr_t begin, Kind kind) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(begin);
  if (found == allocations_.end() || found->second.kind != kind) return false;
  if (found->second.object != 0) return false;
  const Allocation& old = found->second;
  if (kind != Kind::registered) munmap(at(begin), old.mapped_bytes);
  if (kind == Kind::device) {
    munmap(old.reachable, old.mapped_bytes);
    close(old.file);
  }
  allocations_.erase(found);
  return true;
}

std::optional<Allocation> Memory::find(std::uintptr_t address) {
  std::lock_guard lock(mutex_);
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return std::nullopt;
  const Allocation& before = std::prev(after)->second;
  if (address - before.begin >= std::max<std::size_t>(before.bytes, 1)) return std::nullopt;
  return before;
}

std::byte* Memory::reach(std::uintptr_t address, std::size_t bytes) {
  const std::optional<Allocation> found = find(address);
  if (!found) return static_cast<std::byte*>(at(address));
  if (found->object != 0) return reach_mapped(*found, address, bytes);
  const std::size_t offset = address - found->begin;
  return bytes <= found->bytes - offset ? found->reachable + offset : nullptr;
}

void Memory::begin_kernel() {
  const std::lock_guard lock(mutex_);
  if (kernels_++ == 0) protect();
}

void Memory::end_kernel() {
  const std::lock_guard lock(mutex_);
  if (--kernels_ == 0) protect();
}

// Requires  the lock.
void Memory::protect() {
  for (const auto& [begin, allocation] : allocations_)
    if (allocation.kind == Kind::device) protect_one(allocation);
}

// What is mapped and open to nobody stays closed to kernels, too.
void Memory::protect_one(const Allocation& allocation) const {
  const bool open = kernels_ > 0 && (allocation.object == 0 || allocation.open_to != 0);
  mprotect(at(allocation.begin), allocation.mapped_bytes,
           open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

std::size_t Memory::count(Kind kind) {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(allocations_.begin(), allocations_.end(),
                    [&](const auto& entry) { return entry.second.kind == kind; }));
}

bool Memory::is_mapped_elsewhere(std::uintptr_t begin) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(begin);
  if (found == allocations_.end() || found->second.kind != Kind::device) return false;
  if (flock(found->second.file, LOCK_EX | LOCK_NB) != 0) return true;
  flock(found->second.file, LOCK_UN);
  return false;
}

std::size_t Memory::device_bytes(int ordinal) {
  std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [begin, allocation] : allocations_)
    if (allocation.kind == Kind::device && allocation.ordinal == ordinal) bytes += allocation.bytes;
  return bytes;
}

}  // namespace stand_in
