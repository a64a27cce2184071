// softmax_loss.cc: see softmax_loss.hpp; compiled for each instruction set.
#include "training/ops/softmax_loss.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "training/ops/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/ops/softmax_loss.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "training/ops/math_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {
namespace {

template <typename W>
W row_maximum(const W* row, std::int64_t columns) {
  const Lanes<W> d;
  const auto least = hn::Set(d, -std::numeric_limits<W>::infinity());
  auto largest = least;
  for_vectors<W>(columns, [=, &largest](std::int64_t i, std::int64_t n) HWY_ATTR {
    auto value = load_lanes(row + i, n);
    if (n < kLanes<W>)  // lanes past the end are not logits
      value = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(n)), value, least);
    largest = hn::Max(largest, value);
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// Returns the sum of the exponentials.
template <typename T>
Wide<T> exponentials_of_row(const Wide<T>* row, Wide<T> maximum, std::int64_t columns, T* to) {
  using W = Wide<T>;
  const Lanes<W> d;
  // A row of nothing but -infinity has exponentials of 0, not of -infinity minus itself.
  const auto shift = hn::Set(d, std::isinf(maximum) && maximum < 0 ? W{0} : maximum);
  auto sum = hn::Zero(d);
  for_vectors<W>(columns, [=, &sum](std::int64_t i, std::int64_t n) HWY_ATTR {
    auto value = exp_lanes<W>(hn::Sub(load_lanes(row + i, n), shift));
    if (n < kLanes<W>)
      value = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(n)), value);
    sum = hn::Add(sum, value);
    store_lanes(value, to + i, n);
  });
  return sum_lanes<W>(sum);
}

void run_exponentials(const Tensor& logits, const Tensor& exponentials, const Tensor& maxima,
                      const Tensor& sums) {
  visit(exponentials.type(), [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    const std::int64_t columns = logits.columns();
    for (std::int64_t r = 0; r < maxima.count(); ++r) {
      const W* const row = logits.as<W>() + r * columns;
      const W maximum = row_maximum(row, columns);
      maxima.as<W>()[r] = maximum;
      sums.as<W>()[r] =
          exponentials_of_row(row, maximum, columns, exponentials.as<T>() + r * columns);
    }
  });
}

template <typename T>
void scale_row(T* row, Wide<T> factor, std::int64_t columns) {
  for_vectors<T>(columns, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    store_lanes(hn::Mul(load_lanes(row + i, n), hn::Set(Lanes<T>(), factor)), row + i, n);
  });
}

void run_cross_entropy_backward(const Tensor& exponentials, const Tensor& factors,
                                std::span<const std::int32_t> targets, std::int64_t first,
                                double scale) {
  visit(exponentials.type(), [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    const std::int64_t columns = exponentials.columns();
    for (std::int64_t r = 0; r < factors.count(); ++r) {
      T* const row = exponentials.as<T>() + r * columns;
      const W factor = factors.as<W>()[r];
      const std::int64_t target = targets[static_cast<std::size_t>(r)];
      if (target < 0) {
        std::fill_n(row, columns, T{});
        continue;
      }
      const bool here = target >= first && target < first + columns;
      const W probability = here ? load(row[target - first]) * factor : W{0};
      scale_row(row, static_cast<W>(scale) * factor, columns);
      if (here) row[target - first] = store<T>(static_cast<W>(scale) * (probability - 1));
    }
  });
}

}  // namespace
}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::training {

HWY_EXPORT(run_exponentials);
HWY_EXPORT(run_cross_entropy_backward);

void exponentials_of_rows(const Tensor& logits, const Tensor& exponentials, const Tensor& maxima,
                          const Tensor& sums) {
  TRAINING_CHECK(logits.count() == exponentials.count(), "an exponential for each logit");
  TRAINING_CHECK(
      maxima.count() == sums.count() && sums.count() * logits.columns() == logits.count(),
      "a maximum and a sum for each row");
  HWY_DYNAMIC_DISPATCH(run_exponentials)(logits, exponentials, maxima, sums);
}

void cross_entropy_backward(const Tensor& exponentials, const Tensor& factors,
                            std::span<const std::int32_t> targets, std::int64_t first,
                            double scale) {
  TRAINING_CHECK(factors.count() == static_cast<std::int64_t>(targets.size()) &&
                     factors.count() * exponentials.columns() == exponentials.count(),
                 "a factor and a target for each row");
  HWY_DYNAMIC_DISPATCH(run_cross_entropy_backward)(exponentials, factors, targets, first, scale);
}

}  // namespace tutti::training
#endif
