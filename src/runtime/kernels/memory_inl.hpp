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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/cache_line.hpp"
#include "runtime/kernels/kernels.hpp"
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

// Vectors of all these are full ones of bytes, or shorter ones, of which `D` is the tag.
template <class D = Bytes>
HWY_INLINE hn::Vec<D> load(const std::byte* from) {
  return hn::LoadU(D(), reinterpret_cast<const std::uint8_t*>(from));
}

template <class V>
HWY_INLINE void store(V value, std::byte* to) {
  hn::StoreU(value, hn::DFromV<V>(), reinterpret_cast<std::uint8_t*>(to));
}

// Requires: `to` is a multiple of the vector's size.
template <class V>
HWY_INLINE void store_streaming(V value, std::byte* to) {
  hn::Stream(value, hn::DFromV<V>(), reinterpret_cast<std::uint8_t*>(to));
}

// The first `bytes` bytes at `from`, at most a vector, then zeros; reads no others.
template <class D = Bytes>
HWY_INLINE hn::Vec<D> load_first(const std::byte* from, std::size_t bytes) {
  if constexpr (kByteMasks) {
    return hn::MaskedLoad(hn::FirstN(D(), bytes), D(), reinterpret_cast<const std::uint8_t*>(from));
  } else {
    if (bytes == hn::MaxLanes(D())) return load<D>(from);
    HWY_ALIGN std::uint8_t padded[hn::MaxLanes(D())] = {};
    std::memcpy(padded, from, bytes);
    return hn::Load(D(), padded);
  }
}

// Stores the first `bytes` bytes of `value`, at most all, and touches no others.
template <class V>
HWY_INLINE void store_first(V value, std::byte* to, std::size_t bytes) {
  const hn::DFromV<V> tag;
  if constexpr (kByteMasks) {
    hn::BlendedStore(value, hn::FirstN(tag, bytes), tag, reinterpret_cast<std::uint8_t*>(to));
  } else {
    if (bytes == hn::MaxLanes(tag)) return store(value, to);
    HWY_ALIGN std::uint8_t padded[hn::MaxLanes(tag)];
    hn::Store(value, tag, padded);
    std::memcpy(to, padded, bytes);
  }
}

// Where there are vectors only by emulation, blocks of them would cost minutes to compile and gain
// nothing: loops then go vector by vector.
inline constexpr bool kBlocks = HWY_TARGET != HWY_EMU128;

// What loops work on at a time.
inline constexpr std::size_t kBlockBytes = 4 * kVectorBytes;

template <bool kStreaming, class V>
HWY_INLINE void store_block(const V (&values)[4], std::byte* to) {
  constexpr std::size_t kBytes = hn::MaxLanes(hn::DFromV<V>());
  const auto put = [](V value, std::byte* at) HWY_ATTR {
    if constexpr (kStreaming) {
      store_streaming(value, at);
    } else {
      store(value, at);
    }
  };
  put(values[0], to);
  put(values[1], to + kBytes);
  put(values[2], to + 2 * kBytes);
  put(values[3], to + 3 * kBytes);
}

// How far ahead of their stores lines are claimed. Where another core has read them, or the caches
// have lost them, that halves the time of a pass. With a second destination, which as a rule is
// another core's memory, lines take longer to come; in long passes there are other requests enough.
// Measured on an EPYC, reductions of 2 sources, passes of 32 KiB to 2 MiB.
inline std::size_t claim_ahead_bytes(std::size_t bytes, std::size_t destinations) {
  constexpr std::size_t kLongPassBytes = 256 * 1024;
  const std::size_t lines = bytes > kLongPassBytes ? 4 : destinations > 1 ? 16 : 8;
  return lines * base::kLineBytes;
}

// The lines of [from, to) of every destination.
HWY_INLINE void claim(std::span<std::byte* const> destinations, std::size_t from, std::size_t to) {
  for (std::byte* destination : destinations)
    for (std::size_t offset = from; offset < to; offset += base::kLineBytes)
      base::claim_line(destination + offset);
}

// Whether this processor asks by itself, in time, for the lines of other cores that a long loop is
// going to read, though the loop does much to each. A Zen 5 does; a Sapphire Rapids does not.
inline bool fetches_long_runs() {
#if defined(__x86_64__)
  static const bool does = __builtin_cpu_is("intel") == 0;
  return does;
#else
  return true;
#endif
}

// How far ahead of their loads lines are fetched; `bytes`: not at all. So much is done to a line by
// sums that convert what they add that a processor sees too few of those that follow. Others see
// enough, and longer passes wake up the fetching that some processors do by themselves; there it
// costs 3 to 8 %. Where they do none, stores to two destinations get in the way of loads, too; to
// one only, nothing is gained.
//
// Between cores that are far apart: on a Zen 5 a reduce_scatter of 64 KiB of float16 took 3.6 us
// without, and 2.9 with, of float32 2.8. On a Sapphire Rapids one of 1 MiB of bfloat16 58 and 48,
// of float32 46; an all_reduce of 256 KiB of float32 23.4 and 20.1, of 1 MiB 90 and 80.
inline std::size_t fetch_ahead_bytes(std::size_t bytes, bool converts, std::size_t destinations) {
  constexpr std::size_t kLongPassBytes = 128 * 1024;
  const bool asks =
      fetches_long_runs() ? converts && bytes <= kLongPassBytes : converts || destinations > 1;
  return asks ? 16 * base::kLineBytes : bytes;
}

HWY_INLINE void fetch_lines(const std::byte* from, std::size_t bytes) {
  for (std::size_t offset = 0; offset < bytes; offset += base::kLineBytes)
    hwy::Prefetch(from + offset);
}

// How a pass over memory begins: `head` bytes, at most a vector, that bring the destinations to a
// vector boundary, and then whether whole pages bypass the caches.
struct Start {
  std::size_t head = 0;
  bool streaming = false;
};

inline std::size_t phase(const std::byte* p) {
  return reinterpret_cast<std::uintptr_t>(p) % kVectorBytes;
}

inline bool in_phase(std::span<std::byte* const> destinations) {
  return std::all_of(destinations.begin(), destinations.end(), [&](const std::byte* other) {
    return phase(other) == phase(destinations[0]);
  });
}

// Streams run through several pages at once: that many requests keep the memory busy where one
// page after the other would wait at each page's end.
inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kPagesOfStream = 4;

// Steps of kStep bytes, of so many pages in turn, from `offset` on as long as there are so many;
// returns where it ends.
template <std::size_t kStep, class Step>
HWY_INLINE std::size_t by_groups(std::size_t pages, std::size_t offset, std::size_t bytes,
                                 const Step& step) {
  for (const std::size_t group = pages * kPageBytes; offset + group <= bytes; offset += group)
    for (std::size_t in_page = 0; in_page < kPageBytes; in_page += kStep)
      for (std::size_t page = offset; page < offset + group; page += kPageBytes)
        step(page + in_page);
  return offset;
}

// Through the caches, too, several pages at once may be quicker: a Sapphire Rapids asks by itself
// for lines that follow, in each page for its own. Of a step of so many bytes. Source: two of its
// cores, which each read what the other one has written, us, one page after the other, by 2, 4 and
// 8 pages: sums of 128 KiB 15.2, 12.0, 11.8 and 11.0, of 512 KiB 59, 50, 48 and 47; copies of 128
// KiB 15.2 (by the string instruction 12.8), 11.4, 10.8 and 10.8, of 512 KiB 68 (60), 58, 56
// and 56.
inline constexpr std::size_t kPagesInTurn = 8;
template <std::size_t kStep, class Step>
HWY_INLINE std::size_t pages_in_turn(std::size_t offset, std::size_t bytes, const Step& step) {
  for (std::size_t pages = kPagesInTurn; pages > 1; pages /= 2)
    offset = by_groups<kStep>(pages, offset, bytes, step);
  return offset;
}

// Only vectors that are aligned can stream, so all destinations of a pass must have the same
// phase. Cached stores are merely faster when they do not straddle cache lines, so the first
// destination decides. An element is never split.
inline Start plan_start(std::span<std::byte* const> destinations, std::size_t bytes,
                        std::size_t element_bytes, StoreHint stores) {
  constexpr std::size_t kWorthwhileBytes = 16 * kVectorBytes;
  const std::size_t head = (kVectorBytes - phase(destinations[0])) % kVectorBytes;
  if (bytes < kWorthwhileBytes || head % element_bytes != 0) return {};
  return {
      .head = head,
      .streaming = stores == StoreHint::streaming && bytes >= kPageBytes && in_phase(destinations)};
}

// Destinations of different phases, as buffers from malloc() have them, stream in passes of their
// own, in turns of so much, which leave the sources in the caches.
inline constexpr std::size_t kTurnBytes = 64 * 1024;

// Where streamed blocks begin, from `offset` on; then what is left in whole vectors: between cores
// that are far apart, stores of a rest through the caches would take as long as all the others.
// Vectors of so many bytes, of which a block has four.
template <std::size_t kBytes = kVectorBytes, class Block, class Vector>
HWY_INLINE std::size_t stream(std::size_t offset, std::size_t bytes, const Block& block,
                              const Vector& vector) {
  constexpr std::size_t kStep = 4 * kBytes;
  offset = by_groups<kStep>(kPagesOfStream, offset, bytes, block);
  for (; offset + kStep <= bytes; offset += kStep) block(offset);
  for (; offset + kBytes <= bytes; offset += kBytes) vector(offset);
  hwy::FlushStream();
  return offset;
}

}  // namespace tutti::runtime::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
