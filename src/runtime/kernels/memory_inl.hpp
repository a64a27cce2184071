// memory_inl.hpp: vectors of bytes to and from memory: whole, partial, and past the caches.
//
// Compiled once per instruction set (hence no `#pragma once` but Highway's toggle). Knows nothing
// of element types.
#if defined(TUTTI_KERNELS_MEMORY_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_MEMORY_INL_HPP
#undef TUTTI_KERNELS_MEMORY_INL_HPP
#else
#define TUTTI_KERNELS_MEMORY_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/kernels/targets.hpp"
// After the targets.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::runtime::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<std::uint8_t>;
using ByteVector = hn::Vec<Bytes>;
inline constexpr std::size_t kVectorBytes = hn::MaxLanes(Bytes());

// Instruction sets that load and store any number of bytes by one masked instruction.
inline constexpr bool kByteMasks = HWY_TARGET == HWY_AVX3;

HWY_INLINE ByteVector load(const std::byte* from) {
  return hn::LoadU(Bytes(), reinterpret_cast<const std::uint8_t*>(from));
}

HWY_INLINE void store(ByteVector value, std::byte* to) {
  hn::StoreU(value, Bytes(), reinterpret_cast<std::uint8_t*>(to));
}

// Requires: `to` is a multiple of kVectorBytes.
HWY_INLINE void store_streaming(ByteVector value, std::byte* to) {
  hn::Stream(value, Bytes(), reinterpret_cast<std::uint8_t*>(to));
}

// The first `bytes` <= kVectorBytes bytes at `from`, then zeros; reads no others.
HWY_INLINE ByteVector load_first(const std::byte* from, std::size_t bytes) {
  if constexpr (kByteMasks) {
    return hn::MaskedLoad(hn::FirstN(Bytes(), bytes), Bytes(),
                          reinterpret_cast<const std::uint8_t*>(from));
  } else {
    if (bytes == kVectorBytes) return load(from);
    HWY_ALIGN std::uint8_t padded[kVectorBytes] = {};
    std::memcpy(padded, from, bytes);
    return hn::Load(Bytes(), padded);
  }
}

// Stores the first `bytes` <= kVectorBytes bytes of `value`, and touches no others.
HWY_INLINE void store_first(ByteVector value, std::byte* to, std::size_t bytes) {
  if constexpr (kByteMasks) {
    hn::BlendedStore(value, hn::FirstN(Bytes(), bytes), Bytes(),
                     reinterpret_cast<std::uint8_t*>(to));
  } else {
    if (bytes == kVectorBytes) return store(value, to);
    HWY_ALIGN std::uint8_t padded[kVectorBytes];
    hn::Store(value, Bytes(), padded);
    std::memcpy(to, padded, bytes);
  }
}

// The bytes before the first vector boundary that all destinations reach together; kNoBoundary
// when they never do, or only in the middle of an element. (One could stream to some of the
// destinations and not to others, but buffers this large come from the same allocator.)
inline constexpr std::size_t kNoBoundary = ~std::size_t{0};

inline std::size_t bytes_to_boundary(std::span<std::byte* const> destinations,
                                     std::size_t element_bytes) {
  const auto phase = [](const std::byte* p) {
    return reinterpret_cast<std::uintptr_t>(p) % kVectorBytes;
  };
  const std::size_t first = phase(destinations[0]);
  for (const std::byte* other : destinations)
    if (phase(other) != first) return kNoBoundary;
  const std::size_t head = (kVectorBytes - first) % kVectorBytes;
  return head % element_bytes == 0 ? head : kNoBoundary;
}

}  // namespace tutti::runtime::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
