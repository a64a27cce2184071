// elementwise.cc: see elementwise.hpp; compiled for each instruction set.
#include "training/ops/elementwise.hpp"

#include "training/ops/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/ops/elementwise.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "training/ops/vector_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {
namespace {

// to[i] += from[i]; `to` is of the type of `from` or wide.
template <typename To, typename From>
HWY_INLINE void add_range(To* to, const From* from, std::int64_t count) {
  static_assert(kLanes<To> == kLanes<From>);
  for_vectors<From>(count, [=](std::int64_t i, std::int64_t n) HWY_ATTR {
    store_lanes(hn::Add(load_lanes(to + i, n), load_lanes(from + i, n)), to + i, n);
  });
}

void run_add_to(const Tensor& sum, const Tensor& term) {
  visit(sum.type(), [&](auto zero) {
    using T = decltype(zero);
    add_range(sum.as<T>(), term.as<T>(), sum.count());
  });
}

void run_add_row(const Tensor& matrix, const Tensor& row) {
  visit(matrix.type(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = matrix.columns();
    for (std::int64_t r = 0; r < matrix.rows(); ++r)
      add_range(matrix.as<T>() + r * columns, row.as<T>(), columns);
  });
}

void run_add_column_sums(const Tensor& sums, const Tensor& matrix) {
  visit(matrix.type(), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t columns = matrix.columns();
    for (std::int64_t r = 0; r < matrix.rows(); ++r)
      add_range(sums.as<Wide<T>>(), matrix.as<T>() + r * columns, columns);
  });
}

}  // namespace
}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::training {

HWY_EXPORT(run_add_to);
HWY_EXPORT(run_add_row);
HWY_EXPORT(run_add_column_sums);

void add_to(const Tensor& sum, const Tensor& term) {
  TRAINING_CHECK(sum.count() == term.count(), "a sum of tensors of different sizes");
  HWY_DYNAMIC_DISPATCH(run_add_to)(sum, term);
}

void add_row(const Tensor& matrix, const Tensor& row) {
  TRAINING_CHECK(matrix.columns() == row.count(), "a row of another length");
  HWY_DYNAMIC_DISPATCH(run_add_row)(matrix, row);
}

void add_column_sums(const Tensor& sums, const Tensor& matrix) {
  TRAINING_CHECK(matrix.columns() == sums.count(), "column sums of another length");
  HWY_DYNAMIC_DISPATCH(run_add_column_sums)(sums, matrix);
}

}  // namespace tutti::training
#endif
