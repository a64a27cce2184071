// loops.cc: see loops.hpp. Written for themselves, not taken from the library, which would then be
// measured by its own loops; Highway chooses the instruction set when the program runs.
#include "perf/floors/loops.hpp"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "perf/floors/loops.cc"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2)
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tutti::floors::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::CappedTag<std::uint32_t, 16>;
using Floats = hn::Rebind<float, Words>;
using Vector = hn::Vec<Words>;

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kStreamedPages = 4;
constexpr std::size_t kPages = 8;
constexpr std::size_t kPageStep = 256;  // of each of them
constexpr std::size_t kClaimAhead = 1024;

HWY_INLINE Vector load(const std::byte* from) {
  return hn::LoadU(Words(), reinterpret_cast<const std::uint32_t*>(from));
}

template <Stores kStores>
HWY_INLINE void store(Vector value, std::byte* to) {
  auto* words = reinterpret_cast<std::uint32_t*>(to);
  if constexpr (kStores == Stores::streamed)
    hn::Stream(value, Words(), words);
  else
    hn::StoreU(value, Words(), words);
}

struct Copy {
  static HWY_INLINE Vector load_one(const std::byte* a, const std::byte*) { return load(a); }
};

struct AddFloat32 {
  static HWY_INLINE Vector load_one(const std::byte* a, const std::byte* b) {
    const Floats tag;
    return hn::BitCast(Words(), hn::Add(hn::BitCast(tag, load(a)), hn::BitCast(tag, load(b))));
  }
};

// Two sums per word: the upper halves are floats once the lower ones are cleared, the lower halves
// once they are shifted up. To the nearest, ties to even.
struct AddBfloat16 {
  static HWY_INLINE Vector rounded(Vector a, Vector b) {
    const Words words;
    const Floats tag;
    const Vector sum = hn::BitCast(words, hn::Add(hn::BitCast(tag, a), hn::BitCast(tag, b)));
    const Vector odd = hn::And(hn::ShiftRight<16>(sum), hn::Set(words, 1));
    return hn::Add(sum, hn::Add(odd, hn::Set(words, 0x7fff)));
  }
  static HWY_INLINE Vector load_one(const std::byte* a, const std::byte* b) {
    const Vector upper = hn::Set(Words(), 0xffff0000U);
    const Vector x = load(a);
    const Vector y = load(b);
    const Vector high = rounded(hn::And(x, upper), hn::And(y, upper));
    const Vector low = rounded(hn::ShiftLeft<16>(x), hn::ShiftLeft<16>(y));
    return hn::Or(hn::And(high, upper), hn::ShiftRight<16>(low));
  }
};

// Two sums per word, each widened to a float and narrowed again.
struct AddFloat16 {
  using Shorts = hn::Rebind<std::uint16_t, Words>;
  using Halfs = hn::Rebind<hwy::float16_t, Words>;

  // Of the lower halves of words whose upper halves are clear.
  static HWY_INLINE auto widened(Vector words) {
    const auto shorts = hn::DemoteTo(Shorts(), hn::BitCast(hn::RebindToSigned<Words>(), words));
    return hn::PromoteTo(Floats(), hn::BitCast(Halfs(), shorts));
  }
  static HWY_INLINE Vector sum(Vector a, Vector b) {
    const auto halfs = hn::DemoteTo(Halfs(), hn::Add(widened(a), widened(b)));
    return hn::PromoteTo(Words(), hn::BitCast(Shorts(), halfs));
  }
  static HWY_INLINE Vector load_one(const std::byte* a, const std::byte* b) {
    const Vector lower = hn::Set(Words(), 0xffffU);
    const Vector x = load(a);
    const Vector y = load(b);
    const Vector high = sum(hn::ShiftRight<16>(x), hn::ShiftRight<16>(y));
    return hn::Or(hn::ShiftLeft<16>(high), sum(hn::And(x, lower), hn::And(y, lower)));
  }
};

template <class Load, Stores kStores, bool kTwo>
HWY_INLINE void line(Places to, const std::byte* a, const std::byte* b, std::size_t at) {
  constexpr std::size_t kBytes = sizeof(std::uint32_t) * hn::MaxLanes(Words());
  HWY_ALIGN Vector values[kLine / kBytes];
  for (std::size_t i = 0; i < kLine / kBytes; ++i)
    values[i] = Load::load_one(a + at + i * kBytes, b + at + i * kBytes);
  for (std::size_t i = 0; i < kLine / kBytes; ++i)
    store<kStores>(values[i], to.first + at + i * kBytes);
  if constexpr (kTwo)
    for (std::size_t i = 0; i < kLine / kBytes; ++i)
      store<kStores>(values[i], to.second + at + i * kBytes);
}

// As many pages in turn, so many bytes of each; what is left of them is for the caller.
template <class Load, Stores kStores, bool kTwo, std::size_t kTurns, std::size_t kStep>
HWY_INLINE std::size_t pages_in_turn(Places to, const std::byte* a, const std::byte* b,
                                     std::size_t at, std::size_t bytes) {
  for (; at + kTurns * kPage <= bytes; at += kTurns * kPage)
    for (std::size_t in_page = 0; in_page < kPage; in_page += kStep)
      for (std::size_t page = at; page < at + kTurns * kPage; page += kPage)
        for (std::size_t step = page + in_page; step < page + in_page + kStep; step += kLine)
          line<Load, kStores, kTwo>(to, a, b, step);
  return at;
}

template <class Load, Stores kStores, bool kTwo>
void run(Places to, const std::byte* a, const std::byte* b, std::size_t bytes) {
  std::size_t at = 0;
  if constexpr (kStores == Stores::streamed)
    at = pages_in_turn<Load, kStores, kTwo, kStreamedPages, kLine>(to, a, b, at, bytes);
  if constexpr (kStores == Stores::paged) {
    at = pages_in_turn<Load, kStores, kTwo, kPages, kPageStep>(to, a, b, at, bytes);
    at = pages_in_turn<Load, kStores, kTwo, 2, kPageStep>(to, a, b, at, bytes);
  }
  for (; at + kLine <= bytes; at += kLine) {
    if constexpr (kStores == Stores::claimed) {
      __builtin_prefetch(to.first + at + kClaimAhead, 1);
      if constexpr (kTwo) __builtin_prefetch(to.second + at + kClaimAhead, 1);
    }
    line<Load, kStores, kTwo>(to, a, b, at);
  }
  if (at < bytes) {  // the last, partial line goes through one of our own
    alignas(kLine) std::byte ends[3][kLine] = {};
    std::memcpy(ends[0], a + at, bytes - at);
    std::memcpy(ends[1], b + at, bytes - at);
    line<Load, Stores::plain, false>({ends[2], nullptr}, ends[0], ends[1], 0);
    std::memcpy(to.first + at, ends[2], bytes - at);
    if constexpr (kTwo) std::memcpy(to.second + at, ends[2], bytes - at);
  }
  if constexpr (kStores == Stores::streamed) hwy::FlushStream();
}

template <class Load, Stores kStores>
void run(Places to, const std::byte* a, const std::byte* b, std::size_t bytes) {
  if (to.second != nullptr)
    run<Load, kStores, true>(to, a, b, bytes);
  else
    run<Load, kStores, false>(to, a, b, bytes);
}

template <class Load>
void run(Places to, const std::byte* a, const std::byte* b, std::size_t bytes, Stores stores) {
  if (stores == Stores::streamed)
    run<Load, Stores::streamed>(to, a, b, bytes);
  else if (stores == Stores::claimed)
    run<Load, Stores::claimed>(to, a, b, bytes);
  else if (stores == Stores::paged)
    run<Load, Stores::paged>(to, a, b, bytes);
  else
    run<Load, Stores::plain>(to, a, b, bytes);
}

void copy_all(Places to, const std::byte* from, std::size_t bytes, Stores stores) {
  run<Copy>(to, from, from, bytes, stores);  // the second source is not looked at
}

void add_all(Type type, Places to, const std::byte* a, const std::byte* b, std::size_t bytes,
             Stores stores) {
  if (type == Type::f32)
    run<AddFloat32>(to, a, b, bytes, stores);
  else if (type == Type::f16)
    run<AddFloat16>(to, a, b, bytes, stores);
  else
    run<AddBfloat16>(to, a, b, bytes, stores);
}

}  // namespace tutti::floors::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::floors {

HWY_EXPORT(copy_all);
HWY_EXPORT(add_all);

void copy(Places to, const std::byte* from, std::size_t bytes, Stores stores) {
  // The system's own copy knows this processor.
  if (stores == Stores::plain && to.second == nullptr)
    std::memcpy(to.first, from, bytes);
  else
    HWY_DYNAMIC_DISPATCH(copy_all)(to, from, bytes, stores);
}

void add(Type type, Places to, const std::byte* a, const std::byte* b, std::size_t bytes,
         Stores stores) {
  HWY_DYNAMIC_DISPATCH(add_all)(type, to, a, b, bytes, stores);
}

}  // namespace tutti::floors
#endif
