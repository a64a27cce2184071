// copy.cc: one read, many stores. A copy to one place is left to memcpy, which knows this
// processor; only several destinations, or an explicit wish to bypass the caches, take our loop.
#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/copy.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/kernels/memory_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::runtime::kernels::HWY_NAMESPACE {

using Destinations = std::span<std::byte* const>;

// At most one vector.
void copy_few(const std::byte* source, Destinations destinations, std::size_t offset,
              std::size_t bytes) {
  const ByteVector value = load_first(source + offset, bytes);
  for (std::byte* destination : destinations) store_first(value, destination + offset, bytes);
}

template <bool kStreaming>
void copy_blocks(const std::byte* source, Destinations destinations, std::size_t offset,
                 std::size_t bytes) {
  const auto put = [](ByteVector value, std::byte* to) HWY_ATTR {
    if constexpr (kStreaming) {
      store_streaming(value, to);
    } else {
      store(value, to);
    }
  };
  for (; offset + 4 * kVectorBytes <= bytes; offset += 4 * kVectorBytes) {
    const ByteVector a = load(source + offset);
    const ByteVector b = load(source + offset + kVectorBytes);
    const ByteVector c = load(source + offset + 2 * kVectorBytes);
    const ByteVector d = load(source + offset + 3 * kVectorBytes);
    for (std::byte* destination : destinations) {
      put(a, destination + offset);
      put(b, destination + offset + kVectorBytes);
      put(c, destination + offset + 2 * kVectorBytes);
      put(d, destination + offset + 3 * kVectorBytes);
    }
  }
  for (; offset < bytes; offset += kVectorBytes)
    copy_few(source, destinations, offset, std::min(kVectorBytes, bytes - offset));
}

void copy_cached(const std::byte* source, Destinations destinations, std::size_t bytes) {
  copy_blocks<false>(source, destinations, 0, bytes);
}

void copy_streaming(const std::byte* source, Destinations destinations, std::size_t bytes) {
  const std::size_t head = bytes_to_boundary(destinations, 1);
  if (head == kNoBoundary || head >= bytes) return copy_cached(source, destinations, bytes);
  if (head > 0) copy_few(source, destinations, 0, head);
  copy_blocks<true>(source, destinations, head, bytes);
  hwy::FlushStream();
}

std::string_view target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace tutti::runtime::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::runtime::kernels {

HWY_EXPORT(copy_cached);
HWY_EXPORT(copy_streaming);
HWY_EXPORT(target_name);

void copy(const std::byte* source, std::span<std::byte* const> destinations, std::size_t bytes,
          StoreHint stores) {
  TUTTI_ASSERT(!destinations.empty(), "a copy needs a destination");
  if (bytes == 0) return;
  if (stores == StoreHint::streaming) {
    HWY_DYNAMIC_DISPATCH(copy_streaming)(source, destinations, bytes);
  } else if (destinations.size() > 1) {
    HWY_DYNAMIC_DISPATCH(copy_cached)(source, destinations, bytes);
  } else if (destinations[0] != source) {
    std::memcpy(destinations[0], source, bytes);
  }
}

std::string_view active_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace tutti::runtime::kernels
#endif
