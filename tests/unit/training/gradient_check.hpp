// gradient_check.hpp: a rank's surroundings for tests of modules, and the comparison of what
// backward says with central differences of forward.
//
// Values are a function of a parameter's name and an element's place in the whole tensor, so that
// ranks which hold parts and one that holds all compute with the same numbers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "training/modules/module.hpp"
#include "training/ops/gemm.hpp"
#include "training/tensor/philox.hpp"

namespace tutti::training::test {

inline double element(const Tensor& t, std::int64_t i) {
  return visit(t.type(), [&](auto zero) -> double { return load(t.as<decltype(zero)>()[i]); });
}

inline void set_element(const Tensor& t, std::int64_t i, double value) {
  visit(t.type(), [&](auto zero) {
    using T = decltype(zero);
    t.as<T>()[i] = store<T>(static_cast<Wide<T>>(value));
  });
}

inline std::vector<double> elements(const Tensor& t) {
  std::vector<double> values(static_cast<std::size_t>(t.count()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = element(t, static_cast<std::int64_t>(i));
  return values;
}

// Normal numbers that depend on `key` and the element's index only.
inline void fill_normal(const Tensor& t, std::string_view key, double deviation = 1,
                        double mean = 0) {
  const Philox random(key_of(0, key));
  for (std::int64_t i = 0; i < t.count(); ++i)
    set_element(t, i, mean + deviation * random.normal(static_cast<std::uint64_t>(i)));
}

// Gives `parameter` a value and a gradient of zeros. Weights that begin as ones stay near them.
inline void own(Arena& arena, DataType type, Parameter& parameter, double deviation = 0.3) {
  parameter.value = Tensor(arena, MemoryKind::parameter, type, parameter.shape());
  parameter.gradient =
      Tensor::zeros(arena, MemoryKind::gradient, wide_type(type), parameter.shape());
  Tensor whole(arena, MemoryKind::parameter, type, parameter.whole_shape);
  const double mean = parameter.initial.kind == Initial::Kind::ones ? 1 : 0;
  fill_normal(whole, parameter.name, deviation, mean);

  const std::size_t d = parameter.part.dimension;
  std::int64_t inner = 1;  // elements of one step along the dimension that is split
  for (std::size_t i = d + 1; i < parameter.whole_shape.rank(); ++i)
    inner *= parameter.whole_shape[i];
  const std::int64_t here = parameter.part.length * inner;
  const std::int64_t there = parameter.whole_shape[d] * inner;
  for (std::int64_t i = 0; i < parameter.value.count(); ++i) {
    const std::int64_t from = i / here * there + parameter.part.begin * inner + i % here;
    set_element(parameter.value, i, element(whole, from));
  }
}

// What a rank's modules need around them. Lifetime  the axes outlive it; it outlives its modules.
struct TestRank {
  TestRank(DataType type, Axis& tp, Axis& ep, std::string_view gemm_name = "builtin")
      : gemm(std::move(make_gemm(gemm_name)).value()),
        context{.arena = arena, .gemm = *gemm, .tp = tp, .ep = ep, .type = type} {}
  TestRank(const TestRank&) = delete;
  TestRank& operator=(const TestRank&) = delete;

  // Gives all parameters of a Module, an Embedding or a Head values, and gradients of zeros.
  template <typename M>
  void own(M& module, double deviation = 0.3) {
    module.visit(
        [&](Parameter& parameter) { test::own(arena, context.type, parameter, deviation); });
  }

  Tensor normal(const Shape& shape, std::string_view key, double deviation = 1) {
    Tensor made = context.activation(shape);
    fill_normal(made, key, deviation);
    return made;
  }

  Arena arena;
  std::unique_ptr<Gemm> gemm;
  Context context;
};

struct AloneAxes {
  Alone tp, ep;
};

// A rank without peers.
struct OneRank : private AloneAxes, TestRank {
  explicit OneRank(DataType type = DataType::float64, std::int64_t batch = 1,
                   std::int64_t sequence = 1)
      : TestRank(type, AloneAxes::tp, AloneAxes::ep) {
    context.batch = batch;
    context.sequence = sequence;
  }
};

// The largest difference between `gradient` and the slope of `function` by each element of `value`,
// by the largest slope. Source  the five-point central difference, whose error is of step^4.
inline double gradient_error(const std::function<double()>& function, const Tensor& value,
                             const Tensor& gradient) {
  constexpr double kStep = 2e-4;
  double difference = 0, largest = 0;
  for (std::int64_t i = 0; i < value.count(); ++i) {
    const double here = element(value, i);
    const auto at = [&](double steps) {
      set_element(value, i, here + steps * kStep);
      return function();
    };
    const double slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);
    set_element(value, i, here);
    largest = std::max(largest, std::abs(slope));
    const double error = std::abs(slope - element(gradient, i));
    difference = std::isnan(error) ? error : std::max(difference, error);
    if (std::isnan(difference)) break;
  }
  return difference / std::max(largest, 1e-6);  // where all slopes are 0, so must the gradient be
}

// Checks dx and every parameter's gradient of a module that is computed in float64, for a random
// linear functional of its output plus the balance loss, if it has one.
// Requires  parameters with values, and gradients of zeros.
inline void expect_gradients(Module& module, Context& context, const Tensor& x,
                             double tolerance = 1e-7) {
  ASSERT_EQ(context.type, DataType::float64) << "differences need all the digits";
  const Tensor input = context.activation(x.shape());  // modules may change what they are given
  Tensor direction;
  const auto functional = [&] {
    std::copy_n(x.as<double>(), x.count(), input.as<double>());
    Kept kept;
    context.balance_loss = 0;
    const Tensor y = module.forward(input, kept);
    if (direction.empty()) {
      direction = context.activation(y.shape());
      fill_normal(direction, "direction");
    }
    double sum = context.balance_scale * context.balance_loss;
    for (std::int64_t i = 0; i < y.count(); ++i) sum += element(y, i) * element(direction, i);
    return sum;
  };
  functional();  // which makes the direction

  Kept kept;
  std::copy_n(x.as<double>(), x.count(), input.as<double>());
  const Tensor y = module.forward(input, kept);
  const Tensor dy = context.activation(y.shape());
  std::copy_n(direction.as<double>(), dy.count(), dy.as<double>());
  const Tensor dx = module.backward_input(dy, kept);
  ASSERT_EQ(dx.count(), x.count());
  module.backward_weight(kept);
  EXPECT_TRUE(kept.empty()) << "backward_weight lets go of what forward kept";

  EXPECT_LE(gradient_error(functional, x, dx), tolerance) << "of the input";
  module.visit([&](Parameter& parameter) {
    const Tensor& value = parameter.tied_to ? parameter.tied_to->value : parameter.value;
    EXPECT_LE(gradient_error(functional, value, parameter.gradient), tolerance)
        << "of " << parameter.name;
  });
}

// The largest difference of two vectors' elements, by the largest element.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return INFINITY;
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace tutti::training::test
