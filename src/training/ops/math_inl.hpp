// math_inl.hpp: exponentials of vectors. Compiled once per instruction set (hence no `#pragma once`
// but Highway's toggle).
#if defined(TRAINING_OPS_MATH_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINING_OPS_MATH_INL_HPP
#undef TRAINING_OPS_MATH_INL_HPP
#else
#define TRAINING_OPS_MATH_INL_HPP
#endif

#include "hwy/contrib/math/math-inl.h"
#include "training/ops/vector_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {

// e^x within a unit in the last place. Highway's gives 0 for NaN; a NaN must be seen.
// Requires  x <= 0, or NaN.
template <typename W>
HWY_INLINE Vector<W> exp_lanes(Vector<W> x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(Lanes<W>(), x));
}

// 1 / (1 + e^-x), by the exponential that cannot overflow. Of NaN, any number: users multiply by
// what it was made of.
template <typename W>
HWY_INLINE Vector<W> sigmoid_lanes(Vector<W> x) {
  const Lanes<W> d;
  const auto one = hn::Set(d, W{1});
  const auto e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const auto numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
