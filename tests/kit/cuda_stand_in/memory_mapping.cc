// memory_mapping.cc: part of the stand-in for CUDA, which is a test kit and NOT CUDA: memory that
// is made without addresses and mapped into reserved ones. See memory.hpp.
//
// An object is a file in memory, whose name says the device. Reserved addresses are twofold, as all
// of a device's memory here: programs' own, and others under which the stand-in reaches the same.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "kit/cuda_stand_in/memory.hpp"

namespace stand_in {
namespace {

constexpr std::string_view kName = "cuda-stand-in-object-";
constexpr int kGarbage = 0xa5;

std::byte* at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }
std::uintptr_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

void* map_nothing(void* where, std::size_t bytes) {
  return mmap(where, bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (where != nullptr ? MAP_FIXED : 0), -1,
              0);
}

// The device whose object this is; -1: it is none.
int device_of_file(int file) {
  std::array<char, 200> text{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), text.data(), text.size() - 1);
  const std::string_view name(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::string begin = "/memfd:" + std::string(kName);
  if (!name.starts_with(begin)) return -1;
  return std::atoi(text.data() + begin.size());
}

}  // namespace

// ---- Objects ----

std::uint64_t Memory::create_object(int ordinal, std::size_t bytes, int handle_types) {
  const std::string name = std::string(kName) + std::to_string(ordinal);
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0) return 0;
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return close(file), 0;
  std::memset(memory, kGarbage, std::min<std::size_t>(bytes, 1 << 20));
  munmap(memory, bytes);
  const std::lock_guard lock(mutex_);
  objects_[++last_object_] = {file, bytes, ordinal, handle_types, 1};
  return last_object_;
}

// Opened anew, so that the lock by which its owner sees that somebody has it is not the owner's.
std::uint64_t Memory::import_object(int descriptor) {
  const int ordinal = device_of_file(descriptor);
  if (ordinal < 0) return 0;
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status = {};
  if (opened < 0) return 0;
  if (fstat(opened, &status) != 0 || status.st_size <= 0) return close(opened), 0;
  note_use(opened);
  const std::lock_guard lock(mutex_);
  objects_[++last_object_] = {opened, static_cast<std::size_t>(status.st_size), ordinal, 0, 1};
  return last_object_;
}

std::optional<Object> Memory::find_object(std::uint64_t object) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(object);
  return found == objects_.end() ? std::nullopt : std::optional(found->second);
}

bool Memory::retain_object(std::uint64_t object) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(object);
  if (found == objects_.end()) return false;
  ++found->second.references;
  return true;
}

bool Memory::release_object(std::uint64_t object) {
  const std::lock_guard lock(mutex_);
  if (objects_.count(object) == 0) return false;
  drop_reference(object);
  return true;
}

// Requires  the lock.
void Memory::drop_reference(std::uint64_t object) {
  const auto found = objects_.find(object);
  if (--found->second.references > 0) return;
  close(found->second.file);
  objects_.erase(found);
}

// ---- Addresses ----

std::uintptr_t Memory::reserve(std::size_t bytes) {
  void* const begin = map_nothing(nullptr, bytes);
  void* const reachable = map_nothing(nullptr, bytes);
  if (begin == MAP_FAILED || reachable == MAP_FAILED) {
    if (begin != MAP_FAILED) munmap(begin, bytes);
    return 0;
  }
  const std::lock_guard lock(mutex_);
  reservations_[address_of(begin)] = {bytes, static_cast<std::byte*>(reachable)};
  return address_of(begin);
}

bool Memory::unreserve(std::uintptr_t begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(begin);
  if (found == reservations_.end() || found->second.bytes != bytes) return false;
  const auto inside = allocations_.lower_bound(begin);
  if (inside != allocations_.end() && inside->first < begin + bytes) return false;
  munmap(at(begin), bytes);
  munmap(found->second.reachable, bytes);
  reservations_.erase(found);
  return true;
}

bool Memory::map(std::uintptr_t where, std::size_t bytes, std::uint64_t object) {
  const std::lock_guard lock(mutex_);
  const auto known = objects_.find(object);
  auto after = reservations_.upper_bound(where);
  if (known == objects_.end() || after == reservations_.begin() || bytes == 0) return false;
  const auto& [begin, reservation] = *std::prev(after);
  const std::size_t offset = where - begin;
  if (offset > reservation.bytes || bytes > reservation.bytes - offset) return false;
  if (bytes > known->second.bytes) return false;
  for (const auto& [other, allocation] : allocations_)
    if (other < where + bytes && where < other + allocation.bytes) return false;
  Allocation made;
  made.begin = where;
  made.bytes = made.mapped_bytes = bytes;
  made.ordinal = known->second.ordinal;
  made.reachable = reservation.reachable + offset;
  made.file = known->second.file;
  made.id = ++last_id_;
  made.object = object;
  const int flags = MAP_SHARED | MAP_FIXED;
  mmap(at(where), bytes, PROT_NONE, flags, made.file, 0);
  mmap(made.reachable, bytes, PROT_READ | PROT_WRITE, flags, made.file, 0);
  allocations_[where] = made;
  ++known->second.references;
  return true;
}

bool Memory::unmap(std::uintptr_t where, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(where);
  if (found == allocations_.end() || found->second.object == 0) return false;
  if (found->second.bytes != bytes) return false;
  map_nothing(at(where), bytes);
  map_nothing(found->second.reachable, bytes);
  drop_reference(found->second.object);
  allocations_.erase(found);
  return true;
}

bool Memory::set_access(std::uintptr_t where, std::size_t bytes, int ordinal, bool open) {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t end = where + bytes;
  for (std::uintptr_t next = where; next < end;) {
    const auto found = allocations_.find(next);
    if (found == allocations_.end() || found->second.object == 0) return false;
    next += found->second.bytes;
    if (next > end) return false;
  }
  for (auto each = allocations_.find(where); each != allocations_.end() && each->first < end;
       ++each) {
    const unsigned bit = 1U << static_cast<unsigned>(ordinal);
    each->second.open_to = open ? each->second.open_to | bit : each->second.open_to & ~bit;
    protect_one(each->second);
  }
  return true;
}

// Across mappings that lie side by side, as far as they are open to a device.
std::byte* Memory::reach_mapped(const Allocation& first, std::uintptr_t address,
                                std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t end = address + bytes;
  for (std::uintptr_t next = first.begin; next < end;) {
    const auto found = allocations_.find(next);
    if (found == allocations_.end() || found->second.open_to == 0) return nullptr;
    if (address_of(found->second.reachable) - next != address_of(first.reachable) - first.begin)
      return nullptr;
    next += found->second.bytes;
  }
  return first.reachable + (address - first.begin);
}

std::size_t Memory::object_count() {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

std::size_t Memory::reservation_count() {
  const std::lock_guard lock(mutex_);
  return reservations_.size();
}

}  // namespace stand_in
