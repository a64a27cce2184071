// copy.cc: one read, many stores; through the caches, or past them.
//
// From 2 KiB on memcpy is the processor's string instruction, which is not the same thing as a loop
// of vectors. Between two cores of a Zen 5 that are far from each other, through queues, an
// all_gather of 4 MiB took 398 us with it and 331 with the loop, and through longer queues a
// broadcast of 1 MiB 55 and 39; between cores that share a cache, a broadcast of 64 KiB between
// buffers that both can reach took 0.9 and 1.3, an all_gather of 1 MiB 11 and 18. So who calls says
// which it is (store_choice.hpp). Many destinations in one pass made nothing quicker.
//
// Lines are claimed ahead. On that machine they make no difference; between two cores of a Xeon of
// model 207, buffers that both can reach, a broadcast of 64 KiB took 4.7 us without and 3.5 with,
// an all_gather of 64 KiB 4.0 and 3.5, one of 1 MiB 47 and 39. Twice as far ahead gains no more.
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
HWY_INLINE void copy_block(const std::byte* source, Destinations destinations, std::size_t offset) {
  const std::byte* from = source + offset;
  const ByteVector values[4] = {load(from), load(from + kVectorBytes),
                                load(from + 2 * kVectorBytes), load(from + 3 * kVectorBytes)};
  for (std::byte* destination : destinations) store_block<kStreaming>(values, destination + offset);
}

std::size_t copy_past_caches(const std::byte* source, Destinations destinations, std::size_t offset,
                             std::size_t bytes) {
  return stream(
      offset, bytes, [=](std::size_t at) HWY_ATTR { copy_block<true>(source, destinations, at); },
      [=](std::size_t at) HWY_ATTR {
        const ByteVector value = load(source + at);
        for (std::byte* destination : destinations) store_streaming(value, destination + at);
      });
}

void copy_cached(const std::byte* source, std::byte* destination, std::size_t bytes) {
  constexpr std::size_t kAhead = 16 * base::kLineBytes;
  const Destinations to(&destination, 1);
  std::size_t offset = plan_start(to, bytes, 1, StoreHint::cached).head;
  claim(to, offset, std::min(bytes, offset + kAhead));
  if (offset > 0) copy_few(source, to, 0, offset);
  for (; offset + kBlockBytes <= bytes; offset += kBlockBytes) {
    // Never beyond `bytes`: what lies there may be in use by another core.
    if (offset + kBlockBytes + kAhead <= bytes)
      claim(to, offset + kAhead, offset + kAhead + kBlockBytes);
    copy_block<false>(source, to, offset);
  }
  std::memcpy(destination + offset, source + offset, bytes - offset);
}

// A vector is stored before the next one is loaded: of 64 to 512 KiB of another core of an Emerald
// Rapids, that is worth 10 %.
void copy_paged(const std::byte* source, std::byte* destination, std::size_t bytes) {
  const Destinations to(&destination, 1);
  std::size_t offset = plan_start(to, bytes, 1, StoreHint::cached).head;
  if (offset > 0) copy_few(source, to, 0, offset);
  const auto block = [=](std::size_t begin) HWY_ATTR {
    for (std::size_t at = begin; at < begin + kBlockBytes; at += kVectorBytes)
      store(load(source + at), destination + at);
  };
  offset = pages_in_turn<kBlockBytes>(offset, bytes, block);
  for (; offset + kBlockBytes <= bytes; offset += kBlockBytes) block(offset);
  std::memcpy(destination + offset, source + offset, bytes - offset);
}

// Destinations of one phase.
void copy_in_phase(const std::byte* source, Destinations destinations, std::size_t bytes) {
  const Start start = plan_start(destinations, bytes, 1, StoreHint::streaming);
  std::size_t offset = 0;
  if (start.streaming) {
    if (start.head > 0) copy_few(source, destinations, 0, start.head);
    offset = copy_past_caches(source, destinations, start.head, bytes);
  }
  for (std::byte* destination : destinations)
    if (destination != source) std::memcpy(destination + offset, source + offset, bytes - offset);
}

void copy_streaming(const std::byte* source, Destinations destinations, std::size_t bytes) {
  if (in_phase(destinations)) return copy_in_phase(source, destinations, bytes);
  for (std::size_t offset = 0; offset < bytes; offset += kTurnBytes)
    for (std::byte* destination : destinations) {
      std::byte* const part = destination + offset;
      copy_in_phase(source + offset, {&part, 1}, std::min(kTurnBytes, bytes - offset));
    }
}

std::string_view target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace tutti::runtime::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::runtime::kernels {

HWY_EXPORT(copy_cached);
HWY_EXPORT(copy_paged);
HWY_EXPORT(copy_streaming);
HWY_EXPORT(target_name);

void copy(const std::byte* source, std::span<std::byte* const> destinations, std::size_t bytes,
          StoreHint stores) {
  TUTTI_ASSERT(!destinations.empty(), "a copy needs a destination");
  if (bytes == 0) return;
  if (stores == StoreHint::streaming) {
    HWY_DYNAMIC_DISPATCH(copy_streaming)(source, destinations, bytes);
    return;
  }
  constexpr std::size_t kWorthwhileBytes = 4096;
  for (std::byte* destination : destinations) {
    if (destination == source) continue;
    if (bytes < kWorthwhileBytes || stores == StoreHint::string)
      std::memcpy(destination, source, bytes);
    else if (stores == StoreHint::paged)
      HWY_DYNAMIC_DISPATCH(copy_paged)(source, destination, bytes);
    else
      HWY_DYNAMIC_DISPATCH(copy_cached)(source, destination, bytes);
  }
}

std::string_view active_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace tutti::runtime::kernels
#endif
