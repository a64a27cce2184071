// rope.cc: the turning of pairs in vectors; see rope.hpp.
#include "training/ops/rope.hpp"

#include <cmath>

#include "training/ops/targets.hpp"
#include "training/tensor/element.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/ops/rope.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "training/ops/vector_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {

// Two halves of a head, each of `half` elements, by angles whose cosines and sines are given.
template <typename T>
void turn_head(T* head, std::int64_t half, const Wide<T>* cosines, const Wide<T>* sines,
               Wide<T> direction) {
  const Lanes<T> d;
  const auto sign = hn::Set(d, direction);
  for_vectors<T>(half, [&](std::int64_t i, std::int64_t n) HWY_ATTR {
    const auto cosine = load_lanes(cosines + i, n);
    const auto sine = hn::Mul(sign, load_lanes(sines + i, n));
    const auto x = load_lanes(head + i, n), y = load_lanes(head + half + i, n);
    store_lanes(hn::NegMulAdd(y, sine, hn::Mul(x, cosine)), head + i, n);
    store_lanes(hn::MulAdd(x, sine, hn::Mul(y, cosine)), head + half + i, n);
  });
}

template <typename T>
void turn_as(const Tensor& x, std::int64_t sequence, std::int64_t head_size, const Wide<T>* cosines,
             const Wide<T>* sines, Wide<T> direction) {
  const std::int64_t half = head_size / 2;
  T* const data = x.as<T>();
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    const std::int64_t at = row % sequence * half;
    for (std::int64_t head = 0; head < x.columns(); head += head_size)
      turn_head<T>(data + row * x.columns() + head, half, cosines + at, sines + at, direction);
  }
}

void turn_floats(const Tensor& x, std::int64_t sequence, std::int64_t head_size,
                 const float* cosines, const float* sines, float direction) {
  visit(x.type(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, double>)
      turn_as<T>(x, sequence, head_size, cosines, sines, direction);
  });
}

void turn_doubles(const Tensor& x, std::int64_t sequence, std::int64_t head_size,
                  const double* cosines, const double* sines, double direction) {
  turn_as<double>(x, sequence, head_size, cosines, sines, direction);
}

}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::training {
namespace {

HWY_EXPORT(turn_floats);
HWY_EXPORT(turn_doubles);

}  // namespace

template <typename W>
void RotaryPositions::Table<W>::grow(std::int64_t positions, std::int64_t head_size, double theta) {
  const std::int64_t half = head_size / 2;
  for (auto i = static_cast<std::int64_t>(cosines.size()); i < positions * half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i % half) / static_cast<double>(head_size);
    const double angle = static_cast<double>(i / half) * std::pow(theta, exponent);
    cosines.push_back(static_cast<W>(std::cos(angle)));
    sines.push_back(static_cast<W>(std::sin(angle)));
  }
}

RotaryPositions::RotaryPositions(std::int64_t head_size, double theta, DataType type)
    : head_size_(head_size), theta_(theta) {
  TRAINING_CHECK(head_size > 0 && head_size % 2 == 0, "a head is turned in pairs of elements");
  if (type == DataType::float64) table_.emplace<Table<double>>();
}

void RotaryPositions::turn(const Tensor& x, std::int64_t sequence, int direction) {
  TRAINING_CHECK(x.columns() % head_size_ == 0, "rows are whole heads");
  if (auto* doubles = std::get_if<Table<double>>(&table_)) {
    TRAINING_CHECK(x.type() == DataType::float64, "a table is of the type it was made for");
    doubles->grow(sequence, head_size_, theta_);
    HWY_DYNAMIC_DISPATCH(turn_doubles)
    (x, sequence, head_size_, doubles->cosines.data(), doubles->sines.data(), direction);
  } else {
    TRAINING_CHECK(x.type() != DataType::float64, "a table is of the type it was made for");
    auto& floats = std::get<Table<float>>(table_);
    floats.grow(sequence, head_size_, theta_);
    HWY_DYNAMIC_DISPATCH(turn_floats)
    (x, sequence, head_size_, floats.cosines.data(), floats.sines.data(),
     static_cast<float>(direction));
  }
}

}  // namespace tutti::training
#endif  // HWY_ONCE
