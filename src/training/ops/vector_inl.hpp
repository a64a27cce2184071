// vector_inl.hpp: how elements of any type get into vectors of the type that they are computed in,
// and back, and the loop over a row of them.
//
// Compiled once per instruction set (hence no `#pragma once` but Highway's toggle). What is left at
// the end of a row is put into a vector too, so that an element is computed by the same
// instructions wherever it lies.
#if defined(TRAINING_OPS_VECTOR_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINING_OPS_VECTOR_INL_HPP
#undef TRAINING_OPS_VECTOR_INL_HPP
#else
#define TRAINING_OPS_VECTOR_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "training/tensor/element.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Instruction sets that convert float16 by themselves; Highway's emulation rounds otherwise.
inline constexpr bool kNativeFloat16 =
    HWY_TARGET != HWY_SSE4 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;

// The vectors that elements of type T are computed in.
template <typename T>
using Lanes = hn::ScalableTag<Wide<T>>;
template <typename T>
using Vector = hn::Vec<Lanes<T>>;
template <typename T>
inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Lanes<T>()));

HWY_INLINE Vector<float> load_lanes(const float* from) { return hn::LoadU(Lanes<float>(), from); }
HWY_INLINE Vector<double> load_lanes(const double* from) {
  return hn::LoadU(Lanes<double>(), from);
}

HWY_INLINE Vector<float> load_lanes(const bfloat16* from) {
  const hn::Rebind<std::uint16_t, Lanes<float>> halves;
  const hn::RebindToUnsigned<Lanes<float>> words;
  const auto raw = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(Lanes<float>(), hn::ShiftLeft<16>(hn::PromoteTo(words, raw)));
}

HWY_INLINE Vector<float> load_lanes(const float16* from) {
  if constexpr (kNativeFloat16) {
    const hn::Rebind<hwy::float16_t, Lanes<float>> halves;
    const hn::Rebind<std::uint16_t, Lanes<float>> bits;
    const auto raw = hn::LoadU(bits, reinterpret_cast<const std::uint16_t*>(from));
    return hn::PromoteTo(Lanes<float>(), hn::BitCast(halves, raw));
  } else {
    HWY_ALIGN float lanes[kLanes<float>];
    for (std::int64_t i = 0; i < kLanes<float>; ++i) lanes[i] = load(from[i]);
    return hn::Load(Lanes<float>(), lanes);
  }
}

HWY_INLINE void store_lanes(Vector<float> value, float* to) {
  hn::StoreU(value, Lanes<float>(), to);
}
HWY_INLINE void store_lanes(Vector<double> value, double* to) {
  hn::StoreU(value, Lanes<double>(), to);
}

// As store() in element.hpp does it.
HWY_INLINE void store_lanes(Vector<float> value, bfloat16* to) {
  const hn::Rebind<std::uint16_t, Lanes<float>> halves;
  const hn::RebindToUnsigned<Lanes<float>> words;
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(words, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(words, 0x400000u));
  const auto is_nan = hn::RebindMask(words, hn::IsNaN(value));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  hn::StoreU(hn::TruncateTo(halves, upper), halves, reinterpret_cast<std::uint16_t*>(to));
}

HWY_INLINE void store_lanes(Vector<float> value, float16* to) {
  if constexpr (kNativeFloat16) {
    const hn::Rebind<hwy::float16_t, Lanes<float>> halves;
    const hn::Rebind<std::uint16_t, Lanes<float>> bits;
    const auto raw = hn::BitCast(bits, hn::DemoteTo(halves, value));
    hn::StoreU(raw, bits, reinterpret_cast<std::uint16_t*>(to));
  } else {
    HWY_ALIGN float lanes[kLanes<float>];
    hn::Store(value, Lanes<float>(), lanes);
    for (std::int64_t i = 0; i < kLanes<float>; ++i) to[i] = store<float16>(lanes[i]);
  }
}

// The first `count` of a vector; the other lanes are zero. Requires  count in [0, lanes].
template <typename T>
HWY_INLINE Vector<T> load_lanes(const T* from, std::int64_t count) {
  if (count == kLanes<T>) return load_lanes(from);
  T lanes[kLanes<T>] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load_lanes(lanes);
}

template <typename T>
HWY_INLINE void store_lanes(Vector<T> value, T* to, std::int64_t count) {
  if (count == kLanes<T>) return store_lanes(value, to);
  T lanes[kLanes<T>];
  store_lanes(value, lanes);
  for (std::int64_t i = 0; i < count; ++i) to[i] = lanes[i];
}

// Calls f(begin, n) for the vectors of a row of `count` elements: n is the number of lanes, known
// to the compiler, in all but the last one.
template <typename T, typename F>
HWY_INLINE void for_vectors(std::int64_t count, const F& f) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) f(i, kLanes<T>);
  if (i < count) f(i, count - i);
}

template <typename T>
HWY_INLINE Wide<T> sum_lanes(Vector<T> value) {
  return hn::GetLane(hn::SumOfLanes(Lanes<T>(), value));
}

}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
