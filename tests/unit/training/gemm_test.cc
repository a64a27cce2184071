// gemm_test.cc: products by every implementation that this build has against a loop, and what only
// ours promises: that an element's bits do not depend on the shapes around it.
#include "training/ops/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "unit/training/gradient_check.hpp"

namespace tutti::training {
namespace {

std::unique_ptr<Gemm> gemm(std::string_view name) { return std::move(make_gemm(name)).value(); }

// Columns to the left and right of a matrix that are not of it.
constexpr std::int64_t kMargin = 3;

// A matrix that is what a product sees as [rows, columns], within a larger one of other numbers.
class Matrix {
 public:
  Matrix(DataType type, std::int64_t rows, std::int64_t columns, bool transposed,
         std::string_view key)
      : rows_(transposed ? columns : rows),
        columns_(transposed ? rows : columns),
        transposed_(transposed),
        memory_(arena_, MemoryKind::activation, type, {rows_ + 1, columns_ + 2 * kMargin}) {
    test::fill_normal(memory_, key);
  }

  MatrixView view() const {
    MatrixView view = memory_;
    view.data += static_cast<std::size_t>(kMargin) * size_of(view.type);
    view.rows = rows_;
    view.columns = columns_;
    view.transposed = transposed_;
    return view;
  }

  // Row-major, as a product sees it.
  std::vector<double> values() const {
    std::vector<double> values;
    const std::int64_t rows = transposed_ ? columns_ : rows_;
    const std::int64_t columns = transposed_ ? rows_ : columns_;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t row = transposed_ ? j : i, column = transposed_ ? i : j;
        values.push_back(test::element(memory_, row * memory_.columns() + kMargin + column));
      }
    return values;
  }

  // The numbers that are not of the matrix.
  std::vector<double> frame() const {
    std::vector<double> values;
    for (std::int64_t i = 0; i < memory_.count(); ++i) {
      const std::int64_t row = i / memory_.columns(), column = i % memory_.columns() - kMargin;
      if (row >= rows_ || column < 0 || column >= columns_)
        values.push_back(test::element(memory_, i));
    }
    return values;
  }

 private:
  Arena arena_;
  std::int64_t rows_, columns_;
  bool transposed_;
  Tensor memory_;
};

struct Case {
  std::int64_t m, n, k;
};

// Zero, one, primes on both sides of tiles, and blocks that end in the middle of a tile.
constexpr Case kCases[] = {{0, 3, 2},   {3, 0, 2},    {2, 3, 0},    {1, 1, 1},     {1, 7, 5},
                           {13, 1, 3},  {5, 31, 2},   {12, 32, 16}, {13, 33, 17},  {7, 67, 257},
                           {67, 5, 61}, {29, 37, 41}, {146, 35, 3}, {17, 1543, 2}, {151, 40, 263}};

// By how much a sum may be wrong, by the sum of its terms' magnitudes.
double tolerance(DataType in, DataType out) {
  if (in == DataType::float64) return 1e-14;
  if (out == DataType::bfloat16) return 0x1p-8;
  if (out == DataType::float16) return 0x1p-11 + 1e-5;
  return 1e-5;
}

// Sums, and the sums of the terms' magnitudes.
struct Expected {
  std::vector<double> sums, sizes;
};

Expected expected_product(const Matrix& a, const Matrix& b, const Case& c,
                          const std::vector<double>& start) {
  const std::vector<double> left = a.values(), right = b.values();
  Expected expected{start, start};
  for (double& size : expected.sizes) size = std::abs(size);
  const auto n = static_cast<std::size_t>(c.n), depth = static_cast<std::size_t>(c.k);
  for (std::size_t i = 0; i < start.size(); ++i)
    for (std::size_t k = 0; k < depth; ++k) {
      const double term = left[i / n * depth + k] * right[k * n + i % n];
      expected.sums[i] += term;
      expected.sizes[i] += std::abs(term);
    }
  return expected;
}

void check_product(const Gemm& tested, DataType in, DataType out, const Case& c, bool ta, bool tb,
                   bool accumulate) {
  const Matrix a(in, c.m, c.k, ta, "a"), b(in, c.k, c.n, tb, "b");
  const Matrix result(out, c.m, c.n, false, "c");
  const std::vector<double> frame = result.frame();
  std::vector<double> start = result.values();
  if (!accumulate) std::fill(start.begin(), start.end(), 0);
  const Expected expected = expected_product(a, b, c, start);
  tested.multiply(a.view(), b.view(), result.view(), accumulate);
  EXPECT_EQ(result.frame(), frame) << "only the result is written";
  const std::vector<double> found = result.values();
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected.sums[i], tolerance(in, out) * expected.sizes[i])
        << tested.name() << " " << to_string(in) << " to " << to_string(out) << " " << c.m << " x "
        << c.n << " x " << c.k << ", transposed " << ta << tb << ", accumulate " << accumulate
        << ", at " << i;
}

class EveryGemm : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryGemm, IsTheLoop) {
  const auto tested = gemm(GetParam());
  EXPECT_EQ(tested->name(), GetParam());
  for (const DataType in :
       {DataType::float32, DataType::float64, DataType::bfloat16, DataType::float16})
    for (const Case& c : kCases)
      for (int bits = 0; bits < 8; ++bits) {
        const bool ta = bits & 1, tb = bits & 2, accumulate = bits & 4;
        check_product(*tested, in, wide_type(in), c, ta, tb, accumulate);
        if (wide_type(in) != in) check_product(*tested, in, in, c, ta, tb, accumulate);
        if (HasFatalFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(Builds, EveryGemm, ::testing::ValuesIn(gemm_names()));

TEST(MakeGemm, TellsWhichThereAre) {
  const auto wrong = make_gemm("mkl");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(wrong.status().message().find("\"mkl\""), std::string::npos);
  EXPECT_NE(wrong.status().message().find("builtin"), std::string::npos);
  for (const std::string& name : gemm_names()) EXPECT_TRUE(make_gemm(name).ok()) << name;
}

// Of a product of tensors, both plain.
struct Plain {
  Plain(DataType in, DataType out, std::int64_t m, std::int64_t n, std::int64_t k)
      : a(arena, MemoryKind::activation, in, {m, k}),
        b(arena, MemoryKind::activation, in, {k, n}),
        c(arena, MemoryKind::activation, out, {m, n}) {
    test::fill_normal(a, "a");
    test::fill_normal(b, "b");
    test::fill_normal(c, "c");
  }

  Arena arena;
  Tensor a, b, c;
};

MatrixView columns(const Tensor& t, std::int64_t begin, std::int64_t count) {
  MatrixView view = t;
  view.data += static_cast<std::size_t>(begin) * size_of(t.type());
  view.columns = count;
  return view;
}

class BuiltinGemm : public ::testing::TestWithParam<std::pair<DataType, DataType>> {
 protected:
  const DataType in_ = GetParam().first, out_ = GetParam().second;
  const std::unique_ptr<Gemm> gemm_ = gemm("builtin");
};

TEST_P(BuiltinGemm, RowsAreTheSameBitsAlone) {
  constexpr std::int64_t kRows = 157, kColumns = 45, kDepth = 300;
  for (const bool accumulate : {false, true}) {
    Plain whole(in_, out_, kRows, kColumns, kDepth), parts(in_, out_, kRows, kColumns, kDepth);
    gemm_->multiply(whole.a, whole.b, whole.c, accumulate);
    const std::int64_t cuts[] = {0, 1, 8, 19, 100, 144, kRows};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      const std::int64_t count = cuts[i + 1] - cuts[i];
      gemm_->multiply(parts.a.part(cuts[i], count), parts.b, parts.c.part(cuts[i], count),
                      accumulate);
    }
    EXPECT_EQ(std::memcmp(whole.c.data(), parts.c.data(), whole.c.bytes()), 0);
  }
}

TEST_P(BuiltinGemm, ColumnsAreTheSameBitsAlone) {
  constexpr std::int64_t kRows = 29, kColumns = 1601, kDepth = 270;
  for (const bool accumulate : {false, true}) {
    Plain whole(in_, out_, kRows, kColumns, kDepth), parts(in_, out_, kRows, kColumns, kDepth);
    gemm_->multiply(whole.a, whole.b, whole.c, accumulate);
    const std::int64_t cuts[] = {0, 1, 3, 32, 77, 800, 1537, kColumns};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      const std::int64_t count = cuts[i + 1] - cuts[i];
      gemm_->multiply(parts.a, columns(parts.b, cuts[i], count), columns(parts.c, cuts[i], count),
                      accumulate);
    }
    EXPECT_EQ(std::memcmp(whole.c.data(), parts.c.data(), whole.c.bytes()), 0);
  }
}

TEST_P(BuiltinGemm, TransposesAreTheSameBits) {
  constexpr std::int64_t kRows = 37, kColumns = 53, kDepth = 301;
  Plain plain(in_, out_, kRows, kColumns, kDepth);
  gemm_->multiply(plain.a, plain.b, plain.c, false);
  const auto transposed = [&](const Tensor& t) {
    Tensor other(plain.arena, MemoryKind::activation, t.type(), {t.columns(), t.rows()});
    for (std::int64_t i = 0; i < t.count(); ++i)
      test::set_element(other, i % t.columns() * t.rows() + i / t.columns(), test::element(t, i));
    return other;
  };
  const Tensor at = transposed(plain.a), bt = transposed(plain.b);
  const Tensor c(plain.arena, MemoryKind::activation, out_, plain.c.shape());
  gemm_->multiply(MatrixView(at).transpose(), MatrixView(bt).transpose(), c, false);
  EXPECT_EQ(std::memcmp(c.data(), plain.c.data(), c.bytes()), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, BuiltinGemm,
                         ::testing::Values(std::pair(DataType::float32, DataType::float32),
                                           std::pair(DataType::float64, DataType::float64),
                                           std::pair(DataType::bfloat16, DataType::bfloat16),
                                           std::pair(DataType::bfloat16, DataType::float32),
                                           std::pair(DataType::float16, DataType::float32)));

// What gradients of two micro-batches are: the gradient of both together.
TEST(BuiltinGemmDepth, GoesOnWhereASumWas) {
  constexpr std::int64_t kRows = 33, kColumns = 35, kDepth = 600, kCut = 211;
  const auto ours = gemm("builtin");
  for (const DataType in : {DataType::float32, DataType::float64, DataType::bfloat16}) {
    Plain whole(in, wide_type(in), kRows, kColumns, kDepth);
    Plain parts(in, wide_type(in), kRows, kColumns, kDepth);
    ours->multiply(whole.a, whole.b, whole.c, false);
    ours->multiply(columns(parts.a, 0, kCut), parts.b.part(0, kCut), parts.c, false);
    ours->multiply(columns(parts.a, kCut, kDepth - kCut), parts.b.part(kCut, kDepth - kCut),
                   parts.c, true);
    EXPECT_EQ(std::memcmp(whole.c.data(), parts.c.data(), whole.c.bytes()), 0) << to_string(in);
  }
}

// Padding must not let numbers in that are not of the matrices.
TEST(BuiltinGemmPadding, KeepsNaNWhereItIs) {
  Plain p(DataType::float32, DataType::float32, 14, 35, 5);
  p.a.as<float>()[13 * 5 + 2] = NAN;
  gemm("builtin")->multiply(p.a, p.b, p.c, false);
  for (std::int64_t i = 0; i < 14; ++i)
    for (std::int64_t j = 0; j < 35; ++j)
      EXPECT_EQ(std::isnan(p.c.as<float>()[i * 35 + j]), i == 13) << i << ", " << j;
}

}  // namespace
}  // namespace tutti::training
