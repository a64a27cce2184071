// memory.cc: see memory.hpp.
#include "kit/cuda_stand_in/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace stand_in {
namespace {

constexpr std::size_t kPage = 4096;

std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

Memory& Memory::instance() {
  static Memory& memory = *new Memory;
  return memory;
}

void Memory::add(const Allocation& allocation) {
  std::lock_guard lock(mutex_);
  allocations_[allocation.begin] = allocation;
}

std::uintptr_t Memory::allocate_device(Context context, int ordinal, std::size_t bytes) {
  const std::size_t mapped = whole_pages(bytes);
  const int file = memfd_create("cuda-stand-in", MFD_CLOEXEC);
  if (file < 0) return 0;
  void* hidden = MAP_FAILED;
  void* reachable = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(mapped)) == 0) {
    hidden = mmap(nullptr, mapped, PROT_NONE, MAP_SHARED, file, 0);
    reachable = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (hidden == MAP_FAILED || reachable == MAP_FAILED) {
    if (hidden != MAP_FAILED) munmap(hidden, mapped);
    return 0;
  }
  add({address_of(hidden), bytes, mapped, Kind::device, ordinal, context,
       static_cast<std::byte*>(reachable)});
  return address_of(hidden);
}

void* Memory::allocate_host(Context context, int ordinal, std::size_t bytes) {
  const std::size_t mapped = whole_pages(bytes);
  void* const memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  add({address_of(memory), bytes, mapped, Kind::allocated, ordinal, context,
       static_cast<std::byte*>(memory)});
  return memory;
}

bool Memory::register_host(Context context, int ordinal, void* memory, std::size_t bytes) {
  if (find(address_of(memory))) return false;
  add({address_of(memory), bytes, 0, Kind::registered, ordinal, context,
       static_cast<std::byte*>(memory)});
  return true;
}

bool Memory::release(std::uintptr_t begin, Kind kind) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(begin);
  if (found == allocations_.end() || found->second.kind != kind) return false;
  const Allocation& old = found->second;
  if (kind != Kind::registered) munmap(at(begin), old.mapped_bytes);
  if (kind == Kind::device) munmap(old.reachable, old.mapped_bytes);
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
  const std::size_t offset = address - found->begin;
  return bytes <= found->bytes - offset ? found->reachable + offset : nullptr;
}

std::size_t Memory::count(Kind kind) {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(allocations_.begin(), allocations_.end(),
                    [&](const auto& entry) { return entry.second.kind == kind; }));
}

std::size_t Memory::device_bytes(int ordinal) {
  std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [begin, allocation] : allocations_)
    if (allocation.kind == Kind::device && allocation.ordinal == ordinal) bytes += allocation.bytes;
  return bytes;
}

}  // namespace stand_in
