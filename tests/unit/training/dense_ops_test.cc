// dense_ops_test.cc: the vector loops of ops/ on every instruction set: against the formulas, at
// every length around a vector's, and with the same bits wherever in a tensor an element lies.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "training/ops/activation.hpp"
#include "training/ops/elementwise.hpp"
#include "training/ops/gemm.hpp"
#include "training/ops/lookup.hpp"
#include "training/ops/normalize.hpp"
#include "training/ops/softmax_loss.hpp"
#include "unit/training/gradient_check.hpp"
#include "unit/training/instruction_sets.hpp"

namespace tutti::training {
namespace {

constexpr DataType kTypes[] = {DataType::float32, DataType::float64, DataType::bfloat16,
                               DataType::float16};
constexpr std::int64_t kCounts[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 67};

// Of a result that is rounded once to `type`, computed in its wide type.
double tolerance(DataType type) {
  switch (type) {
    case DataType::float64:
      return 1e-14;
    case DataType::float32:
      return 2e-6;
    case DataType::bfloat16:
      return 0x1p-8;
    default:
      return 0x1p-11 + 2e-6;
  }
}

void expect_near(double found, double expected, DataType type) {
  EXPECT_NEAR(found, expected, tolerance(type) * std::max(1.0, std::abs(expected)))
      << to_string(type);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu_value(double x) {
  return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
}
double slope(const std::function<double(double)>& f, double x) {
  constexpr double h = 1e-3;
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

class DenseOps : public test::OnEveryInstructionSet {
 protected:
  Tensor normal(DataType type, const Shape& shape, std::string_view key, double deviation = 1) {
    Tensor made(arena_, MemoryKind::activation, type, shape);
    test::fill_normal(made, key, deviation);
    return made;
  }

  Arena arena_;
};

TEST_P(DenseOps, Activations) {
  for (const DataType type : kTypes)
    for (const std::int64_t count : kCounts) {
      const Tensor gate = normal(type, {count}, "gate", 3), up = normal(type, {count}, "up");
      const Tensor d = normal(type, {count}, "d"), product = normal(type, {count}, "");
      const Tensor dgate = normal(type, {count}, ""), dup = normal(type, {count}, "");
      const Tensor y = normal(type, {count}, ""), dx = normal(type, {count}, "");
      swiglu(gate, up, product);
      swiglu_backward(gate, up, d, dgate, dup);
      gelu(gate, y);
      gelu_backward(gate, d, dx);
      for (std::int64_t i = 0; i < count; ++i) {
        const double g = test::element(gate, i), u = test::element(up, i), e = test::element(d, i);
        const double s = sigmoid(g);
        expect_near(test::element(product, i), g * s * u, type);
        expect_near(test::element(dgate, i), e * u * (s + g * s * (1 - s)), type);
        expect_near(test::element(dup, i), e * g * s, type);
        expect_near(test::element(y, i), gelu_value(g), type);
        if (type != DataType::float64) {
          expect_near(test::element(dx, i), e * slope(gelu_value, g), type);
        } else {
          EXPECT_NEAR(test::element(dx, i), e * slope(gelu_value, g), 1e-10);
        }
      }
    }
}

TEST_P(DenseOps, ActivationsOfExtremes) {
  const double values[] = {-300, -104.5, -88.1, -0.0, 88.1, 300, 3e4};
  for (const DataType type : kTypes) {
    const Tensor x = normal(type, {std::ssize(values)}, ""), ones = normal(type, x.shape(), "");
    const Tensor y = normal(type, x.shape(), ""), dup = normal(type, x.shape(), "");
    for (std::int64_t i = 0; i < x.count(); ++i) {
      test::set_element(x, i, values[i]);
      test::set_element(ones, i, 1);
    }
    swiglu(x, ones, y);
    for (std::int64_t i = 0; i < x.count(); ++i)
      expect_near(test::element(y, i), std::max(test::element(x, i), 0.0), type);
    gelu(x, y);
    for (std::int64_t i = 0; i < x.count(); ++i)
      expect_near(test::element(y, i), std::max(test::element(x, i), 0.0), type);
    swiglu_backward(x, ones, ones, y, dup);
    for (std::int64_t i = 0; i < x.count(); ++i)
      expect_near(test::element(y, i), values[i] > 0 ? 1 : values[i] < 0 ? 0 : 0.5, type);
    gelu_backward(x, ones, y);
    for (std::int64_t i = 0; i < x.count(); ++i)
      expect_near(test::element(y, i), values[i] > 0 ? 1 : values[i] < 0 ? 0 : 0.5, type);
  }
}

TEST_P(DenseOps, ActivationsLetNaNThrough) {
  if (!converts_nan()) GTEST_SKIP() << "a sanitizer, and vectors that are loops";
  for (const DataType type : kTypes) {
    const Tensor x = normal(type, {3}, "x"), one = normal(type, {3}, "y");
    const Tensor y = normal(type, {3}, "z"), dup = normal(type, {3}, "d");
    test::set_element(x, 1, std::numeric_limits<double>::quiet_NaN());
    const auto expect_nan = [](const Tensor& t) {
      for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(std::isnan(test::element(t, i)), i == 1);
    };
    swiglu(x, one, y);
    expect_nan(y);
    gelu(x, y);
    expect_nan(y);
    gelu_backward(x, one, y);
    expect_nan(y);
    swiglu_backward(x, one, one, y, dup);
    expect_nan(y);
    expect_nan(dup);
  }
}

// An element's bits are those of a tensor that has only this element.
TEST_P(DenseOps, AnElementsPlaceDoesNotMatter) {
  for (const DataType type : kTypes) {
    const Tensor a = normal(type, {67}, "a", 4), b = normal(type, {67}, "b");
    const Tensor whole = normal(type, {67}, ""), alone = normal(type, {1}, "");
    const auto expect_same =
        [&](const std::function<void(const Tensor&, const Tensor&, const Tensor&)>& f) {
          f(a, b, whole);
          for (std::int64_t i = 0; i < 67; ++i) {
            f(a.elements(i, 1), b.elements(i, 1), alone);
            EXPECT_EQ(std::memcmp(alone.data(), whole.elements(i, 1).data(), alone.bytes()), 0);
          }
        };
    expect_same([](const Tensor& x, const Tensor& y, const Tensor& z) { swiglu(x, y, z); });
    expect_same([](const Tensor& x, const Tensor&, const Tensor& z) { gelu(x, z); });
    expect_same([](const Tensor& x, const Tensor& y, const Tensor& z) { gelu_backward(x, y, z); });
  }
}

TEST_P(DenseOps, Sums) {
  for (const DataType type : kTypes)
    for (const std::int64_t columns : kCounts) {
      const Tensor matrix = normal(type, {3, columns}, "m"), row = normal(type, {columns}, "r");
      const Tensor sums = normal(wide_type(type), {columns}, "s");
      const std::vector<double> m = test::elements(matrix), s = test::elements(sums);
      add_column_sums(sums, matrix);
      add_row(matrix, row);
      const auto n = static_cast<std::size_t>(columns);
      for (std::size_t i = 0; i < n; ++i)
        expect_near(test::element(sums, static_cast<std::int64_t>(i)),
                    s[i] + m[i] + m[n + i] + m[2 * n + i], wide_type(type));
      for (std::size_t i = 0; i < m.size(); ++i) {
        const double added = m[i] + test::element(row, static_cast<std::int64_t>(i % n));
        expect_near(test::element(matrix, static_cast<std::int64_t>(i)), added, type);
      }
      const Tensor sum = normal(type, {3, columns}, "m");
      add_to(sum, sum);
      for (std::size_t i = 0; i < m.size(); ++i)
        EXPECT_EQ(test::element(sum, static_cast<std::int64_t>(i)), 2 * m[i]);
    }
}

TEST_P(DenseOps, NormsOfEveryLength) {
  for (const DataType type : kTypes)
    for (const std::int64_t size : kCounts)
      for (const bool centred : {false, true}) {
        const Tensor x = normal(type, {2, size}, "x"), weight = normal(type, {size}, "w");
        const Tensor bias = centred ? normal(type, {size}, "b") : Tensor();
        const Tensor y = normal(type, {2, size}, "");
        normalize(x, weight, bias, 0.25, y, normal(wide_type(type), {2, 2}, ""));
        for (std::int64_t r = 0; r < 2; ++r) {
          double mean = 0, square = 0;
          const double n = static_cast<double>(size);
          const auto at = [&](std::int64_t i) { return test::element(x, r * size + i); };
          for (std::int64_t i = 0; i < size; ++i) mean += centred ? at(i) / n : 0;
          for (std::int64_t i = 0; i < size; ++i) square += std::pow(at(i) - mean, 2) / n;
          for (std::int64_t i = 0; i < size; ++i) {
            const double b = centred ? test::element(bias, i) : 0;
            const double unit = (at(i) - mean) / std::sqrt(square + 0.25);
            expect_near(test::element(y, r * size + i), unit * test::element(weight, i) + b, type);
          }
        }
      }
}

TEST_P(DenseOps, ExponentialsOfEveryLength) {
  for (const DataType type : kTypes)
    for (const std::int64_t columns : kCounts) {
      const Tensor logits = normal(wide_type(type), {1, columns}, "l", 5);
      const Tensor exponentials = normal(type, {1, columns}, "");
      const Tensor maxima = normal(wide_type(type), {1}, ""),
                   sums = normal(wide_type(type), {1}, "");
      for (std::int64_t i = 0; i < columns; ++i)  // what is beyond the end must not be the largest
        test::set_element(logits, i, test::element(logits, i) - 50);
      exponentials_of_rows(logits, exponentials, maxima, sums);
      const std::vector<double> l = test::elements(logits);
      const double largest = *std::max_element(l.begin(), l.end());
      EXPECT_EQ(test::element(maxima, 0), largest);
      double sum = 0;
      for (std::int64_t i = 0; i < columns; ++i) {
        const double e = std::exp(l[static_cast<std::size_t>(i)] - largest);
        expect_near(test::element(exponentials, i), e, type);
        sum += e;
      }
      expect_near(test::element(sums, 0), sum, wide_type(type));
    }
}

// Narrow elements are stored as element.hpp stores them: each rounding case, by way of a sum with
// 0.
TEST_P(DenseOps, NarrowTypesRoundAsTheirDefinition) {
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    const Tensor weight = normal(type, {1}, ""), y = normal(type, {1}, "");
    Tensor a = normal(DataType::float32, {1, 1000}, "a", 1e-3), b = normal(type, {1, 1}, "b");
    test::set_element(b, 0, 1);
    for (std::int64_t i = 0; i < a.count(); ++i) {
      const Tensor x = normal(type, {1}, "x"), product = normal(type, {1}, "");
      test::set_element(x, 0, a.as<float>()[i]);
      test::set_element(product, 0, 1.0 / 3);
      const double sum = test::element(x, 0) + test::element(product, 0);
      add_to(product, x);
      const Tensor expected = normal(type, {1}, "");
      test::set_element(expected, 0, sum);
      ASSERT_EQ(test::element(product, 0), test::element(expected, 0)) << i;
    }
  }
}

TEST_P(DenseOps, BuiltinProducts) {
  const auto gemm = std::move(make_gemm("builtin")).value();
  for (const DataType type : kTypes) {
    const Tensor a = normal(type, {19, 23}, "a"), b = normal(type, {23, 37}, "b");
    const Tensor c = normal(wide_type(type), {19, 37}, "");
    gemm->multiply(a, b, c, false);
    for (std::int64_t i = 0; i < 19; ++i)
      for (std::int64_t j = 0; j < 37; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < 23; ++k)
          sum += test::element(a, i * 23 + k) * test::element(b, k * 37 + j);
        EXPECT_NEAR(test::element(c, i * 37 + j), sum, type == DataType::float64 ? 1e-13 : 1e-4);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, DenseOps, ::testing::ValuesIn(test::instruction_sets()),
                         test::instruction_set_name);

TEST(Lookup, LeavesOutRowsThatATableLacks) {
  Arena arena;
  Tensor table(arena, MemoryKind::parameter, DataType::float32, {3, 2});
  test::fill_normal(table, "table");
  const Tensor found(arena, MemoryKind::activation, DataType::float32, {4, 2});
  const std::int64_t rows[] = {2, -1, 3, 0};
  gather_rows(table, rows, found);
  const float* const t = table.as<float>();
  EXPECT_EQ(test::elements(found), (std::vector<double>{t[4], t[5], 0, 0, 0, 0, t[0], t[1]}));
  const Tensor sums = Tensor::zeros(arena, MemoryKind::gradient, DataType::float32, {3, 2});
  test::fill_normal(found, "terms");
  scatter_add_rows(found, rows, sums);
  const float* const f = found.as<float>();
  EXPECT_EQ(test::elements(sums), (std::vector<double>{f[6], f[7], 0, 0, f[0], f[1]}));
}

}  // namespace
}  // namespace tutti::training
