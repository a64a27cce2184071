// normalize.cc: see normalize.hpp; compiled for each instruction set.
#include "training/ops/normalize.hpp"

#include <cmath>

#include "training/ops/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/ops/normalize.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "training/ops/vector_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {
namespace {

template <typename T>
Wide<T> row_sum(const T* x, std::int64_t size) {
  Vector<T> sum = hn::Zero(Lanes<T>());
  for_vectors<T>(size, [&sum, x](std::int64_t i, std::int64_t n)
                           HWY_ATTR { sum = hn::Add(sum, load_lanes(x + i, n)); });
  return sum_lanes<T>(sum);
}

template <typename T>
Wide<T> row_sum_of_squares(const T* x, Wide<T> mean, std::int64_t size) {
  const Lanes<T> d;
  Vector<T> sum = hn::Zero(d);
  for_vectors<T>(size, [&sum, x, mean, d](std::int64_t i, std::int64_t n) HWY_ATTR {
    Vector<T> centred = hn::Sub(load_lanes(x + i, n), hn::Set(d, mean));
    if (n < kLanes<T>)  // lanes past the end are not elements
      centred = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(n)), centred);
    sum = hn::MulAdd(centred, centred, sum);
  });
  return sum_lanes<T>(sum);
}

// `bias` is null for RMSNorm.
template <typename T>
void normalize_row(const T* x, const T* weight, const T* bias, Wide<T> epsilon, std::int64_t size,
                   T* y, Wide<T>* statistics) {
  using W = Wide<T>;
  const Lanes<T> d;
  const W count = static_cast<W>(size);
  const W mean = bias ? row_sum(x, size) / count : W{0};
  const W factor = W{1} / std::sqrt(row_sum_of_squares(x, mean, size) / count + epsilon);
  statistics[0] = mean;
  statistics[1] = factor;
  for_vectors<T>(size, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    const auto unit = hn::Mul(hn::Sub(load_lanes(x + i, n), hn::Set(d, mean)), hn::Set(d, factor));
    const auto scale = load_lanes(weight + i, n);
    const auto result =
        bias ? hn::MulAdd(unit, scale, load_lanes(bias + i, n)) : hn::Mul(unit, scale);
    store_lanes(result, y + i, n);
  });
}

void run_normalize(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                   const Tensor& y, const Tensor& statistics) {
  visit(x.type(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t size = x.columns();
    for (std::int64_t r = 0; r < x.rows(); ++r)
      normalize_row(x.as<T>() + r * size, weight.as<T>(), bias.empty() ? nullptr : bias.as<T>(),
                    static_cast<Wide<T>>(epsilon), size, y.as<T>() + r * size,
                    statistics.as<Wide<T>>() + 2 * r);
  });
}

// With u the normalized x and g = dy * weight:
//   dx = factor * (g - mean(g) - u * mean(g u)), of RMSNorm without mean(g).
template <typename T>
void normalize_row_backward(const T* x, const Wide<T>* statistics, const T* weight, bool centred,
                            const T* dy, std::int64_t size, T* dx) {
  using W = Wide<T>;
  const Lanes<T> d;
  const auto mean = hn::Set(d, statistics[0]), factor = hn::Set(d, statistics[1]);
  Vector<T> sum = hn::Zero(d), sum_along = hn::Zero(d);
  for_vectors<T>(size, [=, &sum, &sum_along](std::int64_t i, std::int64_t n) HWY_ATTR {
    const auto g = hn::Mul(load_lanes(dy + i, n), load_lanes(weight + i, n));
    const auto unit = hn::Mul(hn::Sub(load_lanes(x + i, n), mean), factor);
    sum = hn::Add(sum, g);
    sum_along = hn::MulAdd(g, unit, sum_along);  // g is 0 past the end
  });
  const W count = static_cast<W>(size);
  const auto mean_g = hn::Set(d, centred ? sum_lanes<T>(sum) / count : W{0});
  const auto mean_along = hn::Set(d, sum_lanes<T>(sum_along) / count);
  for_vectors<T>(size, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    const auto g = hn::Mul(load_lanes(dy + i, n), load_lanes(weight + i, n));
    const auto unit = hn::Mul(hn::Sub(load_lanes(x + i, n), mean), factor);
    const auto rest = hn::NegMulAdd(unit, mean_along, hn::Sub(g, mean_g));
    store_lanes(hn::Mul(factor, rest), dx + i, n);
  });
}

void run_normalize_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight,
                            bool centred, const Tensor& dy, const Tensor& dx) {
  visit(x.type(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t size = x.columns();
    for (std::int64_t r = 0; r < x.rows(); ++r)
      normalize_row_backward(x.as<T>() + r * size, statistics.as<Wide<T>>() + 2 * r, weight.as<T>(),
                             centred, dy.as<T>() + r * size, size, dx.as<T>() + r * size);
  });
}

template <typename T>
void add_row_to_weight(const T* x, const Wide<T>* statistics, const T* dy, std::int64_t size,
                       Wide<T>* dweight) {
  const Lanes<T> d;
  const auto mean = hn::Set(d, statistics[0]), factor = hn::Set(d, statistics[1]);
  for_vectors<T>(size, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    const auto unit = hn::Mul(hn::Sub(load_lanes(x + i, n), mean), factor);
    const auto sum = hn::MulAdd(load_lanes(dy + i, n), unit, load_lanes(dweight + i, n));
    store_lanes(sum, dweight + i, n);
  });
}

void run_normalize_backward_weight(const Tensor& x, const Tensor& statistics, const Tensor& dy,
                                   const Tensor& dweight) {
  visit(x.type(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t size = x.columns();
    for (std::int64_t r = 0; r < x.rows(); ++r)
      add_row_to_weight(x.as<T>() + r * size, statistics.as<Wide<T>>() + 2 * r,
                        dy.as<T>() + r * size, size, dweight.as<Wide<T>>());
  });
}

}  // namespace
}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::training {

HWY_EXPORT(run_normalize);
HWY_EXPORT(run_normalize_backward);
HWY_EXPORT(run_normalize_backward_weight);

void normalize(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
               const Tensor& y, const Tensor& statistics) {
  TRAINING_CHECK(x.count() == y.count() && x.columns() == weight.count(), "extents of a norm");
  TRAINING_CHECK(statistics.count() == 2 * x.rows(), "two statistics of each row");
  HWY_DYNAMIC_DISPATCH(run_normalize)(x, weight, bias, epsilon, y, statistics);
}

void normalize_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight,
                        bool centred, const Tensor& dy, const Tensor& dx) {
  TRAINING_CHECK(x.count() == dy.count() && x.count() == dx.count(), "extents of a norm");
  HWY_DYNAMIC_DISPATCH(run_normalize_backward)(x, statistics, weight, centred, dy, dx);
}

void normalize_backward_weight(const Tensor& x, const Tensor& statistics, const Tensor& dy,
                               const Tensor& dweight) {
  TRAINING_CHECK(x.count() == dy.count() && x.columns() == dweight.count(), "extents of a norm");
  HWY_DYNAMIC_DISPATCH(run_normalize_backward_weight)(x, statistics, dy, dweight);
}

}  // namespace tutti::training
#endif
