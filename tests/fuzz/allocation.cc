// allocation.cc: counts what a thread holds from `operator new`; see fuzz.hpp. Replaces the global
// operators of the program that it is linked into, and knows nothing of what is allocated.
#include <malloc.h>

#include <cstdlib>
#include <limits>
#include <new>

#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Whatever lived before the limit may be freed under it, so `held` wraps around zero.
thread_local std::size_t held = 0;
thread_local std::size_t limit = kNoLimit;

void* count(void* memory) {
  if (memory == nullptr) std::abort();
  if (limit == kNoLimit) return memory;
  held += malloc_usable_size(memory);
  if (static_cast<std::ptrdiff_t>(held) > static_cast<std::ptrdiff_t>(limit)) {
    limit = kNoLimit;
    TUTTI_ASSERT(false, "more memory is held than the input's size allows");
  }
  return memory;
}

void uncount(void* memory) {
  if (memory != nullptr && limit != kNoLimit) held -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

AllocationLimit::AllocationLimit(std::size_t bytes) {
  held = 0;
  limit = bytes;
}

AllocationLimit::~AllocationLimit() { limit = kNoLimit; }

}  // namespace tutti::fuzz

using tutti::fuzz::count;
using tutti::fuzz::uncount;

void* operator new(std::size_t bytes) { return count(std::malloc(bytes)); }
void* operator new[](std::size_t bytes) { return count(std::malloc(bytes)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return count(std::malloc(bytes));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return count(std::malloc(bytes));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return count(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return operator new(bytes, alignment);
}
void operator delete(void* memory) noexcept { uncount(memory); }
void operator delete[](void* memory) noexcept { uncount(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncount(memory); }
void operator delete[](void* memory, std::size_t) noexcept { uncount(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { uncount(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { uncount(memory); }
