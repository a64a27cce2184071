// activation.cc: see activation.hpp; compiled for each instruction set.
#include "training/ops/activation.hpp"

#include <initializer_list>

#include "training/ops/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/ops/activation.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "training/ops/math_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {
namespace {

// Loops are of pointers that they capture by value: a compiler must take a store for one that may
// change anything else.
template <typename T>
void swiglu_of(const T* gate, const T* up, T* product, std::int64_t count) {
  for_vectors<T>(count, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    const Vector<T> x = load_lanes(gate + i, n);
    const Vector<T> silu = hn::Mul(x, sigmoid_lanes<Wide<T>>(x));
    store_lanes(hn::Mul(silu, load_lanes(up + i, n)), product + i, n);
  });
}

template <typename T>
void swiglu_backward_of(const T* gate, const T* up, const T* dproduct, T* dgate, T* dup,
                        std::int64_t count) {
  for_vectors<T>(count, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    const Vector<T> x = load_lanes(gate + i, n);
    const Vector<T> u = load_lanes(up + i, n);
    const Vector<T> d = load_lanes(dproduct + i, n);
    const Vector<T> s = sigmoid_lanes<Wide<T>>(x);
    const Vector<T> silu = hn::Mul(x, s);
    // silu' = s + x s (1 - s)
    const Vector<T> slope = hn::MulAdd(silu, hn::Sub(hn::Set(Lanes<T>(), 1), s), s);
    store_lanes(hn::Mul(hn::Mul(d, u), slope), dgate + i, n);
    store_lanes(hn::Mul(d, silu), dup + i, n);
  });
}

// (1 + tanh(z / 2)) / 2 is the sigmoid of z, so that gelu(x) = x sigmoid(z).
template <typename W>
struct Gelu {
  static constexpr W kLinear = static_cast<W>(1.595769121605730711759);  // 2 sqrt(2 / pi)
  static constexpr W kCubic = static_cast<W>(1.595769121605730711759 * 0.044715);

  static HWY_INLINE Vector<W> sigmoid(Vector<W> x) {
    const Lanes<W> d;
    const auto factor = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kCubic), hn::Set(d, kLinear));
    return sigmoid_lanes<W>(hn::Mul(x, factor));
  }

  // s + x s (1 - s) dz/dx
  static HWY_INLINE Vector<W> slope(Vector<W> x) {
    const Lanes<W> d;
    const Vector<W> s = sigmoid(x);
    const auto dz = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 3 * kCubic), hn::Set(d, kLinear));
    const auto bend = hn::Mul(s, hn::Sub(hn::Set(d, W{1}), s));
    return hn::MulAdd(hn::Mul(x, bend), dz, s);
  }
};

template <typename T>
void gelu_of(const T* x, T* y, std::int64_t count) {
  for_vectors<T>(count, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    const Vector<T> value = load_lanes(x + i, n);
    store_lanes(hn::Mul(value, Gelu<Wide<T>>::sigmoid(value)), y + i, n);
  });
}

template <typename T>
void gelu_backward_of(const T* x, const T* dy, T* dx, std::int64_t count) {
  for_vectors<T>(count, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    const Vector<T> slope = Gelu<Wide<T>>::slope(load_lanes(x + i, n));
    store_lanes(hn::Mul(load_lanes(dy + i, n), slope), dx + i, n);
  });
}

void run_swiglu(const Tensor& gate, const Tensor& up, const Tensor& product) {
  visit(gate.type(), [&](auto zero) {
    using T = decltype(zero);
    swiglu_of(gate.as<T>(), up.as<T>(), product.as<T>(), gate.count());
  });
}

void run_swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dproduct,
                         const Tensor& dgate, const Tensor& dup) {
  visit(gate.type(), [&](auto zero) {
    using T = decltype(zero);
    swiglu_backward_of(gate.as<T>(), up.as<T>(), dproduct.as<T>(), dgate.as<T>(), dup.as<T>(),
                       gate.count());
  });
}

void run_gelu(const Tensor& x, const Tensor& y) {
  visit(x.type(), [&](auto zero) {
    using T = decltype(zero);
    gelu_of(x.as<T>(), y.as<T>(), x.count());
  });
}

void run_gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  visit(x.type(), [&](auto zero) {
    using T = decltype(zero);
    gelu_backward_of(x.as<T>(), dy.as<T>(), dx.as<T>(), x.count());
  });
}

}  // namespace
}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::training {

namespace {

void check_alike(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    TRAINING_CHECK(t->count() == (*tensors.begin())->count(), "activations of different sizes");
}

}  // namespace

HWY_EXPORT(run_swiglu);
HWY_EXPORT(run_swiglu_backward);
HWY_EXPORT(run_gelu);
HWY_EXPORT(run_gelu_backward);

void swiglu(const Tensor& gate, const Tensor& up, const Tensor& product) {
  check_alike({&gate, &up, &product});
  HWY_DYNAMIC_DISPATCH(run_swiglu)(gate, up, product);
}

void swiglu_backward(const Tensor& gate, const Tensor& up, const Tensor& dproduct,
                     const Tensor& dgate, const Tensor& dup) {
  check_alike({&gate, &up, &dproduct, &dgate, &dup});
  HWY_DYNAMIC_DISPATCH(run_swiglu_backward)(gate, up, dproduct, dgate, dup);
}

void gelu(const Tensor& x, const Tensor& y) {
  check_alike({&x, &y});
  HWY_DYNAMIC_DISPATCH(run_gelu)(x, y);
}

void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  check_alike({&x, &dy, &dx});
  HWY_DYNAMIC_DISPATCH(run_gelu_backward)(x, dy, dx);
}

}  // namespace tutti::training
#endif
