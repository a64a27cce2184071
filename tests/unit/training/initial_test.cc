// Initial values: whoever holds which part, the whole is the same, bit by bit.
#include "training/model/initial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "training/tensor/arena.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training {
namespace {

class InitialTest : public ::testing::Test {
 protected:
  Tensor range(const Parameter& p, std::int64_t begin, std::int64_t end,
               DataType type = DataType::float32, std::uint64_t seed = 5) {
    const Tensor out(arena_, MemoryKind::parameter, type, {end - begin});
    initialise(p, seed, begin, end, out);
    return out;
  }
  Tensor all(const Parameter& p, DataType type = DataType::float32, std::uint64_t seed = 5) {
    return range(p, 0, p.count(), type, seed);
  }

 private:
  Arena arena_;
};

std::string bytes_of(const Tensor& t) {
  return {reinterpret_cast<const char*>(t.data()), t.bytes()};
}

// Puts a part into the whole, both as bytes.
void put_part(const Parameter& p, const std::string& part, std::size_t size, std::string& whole) {
  std::size_t taken = 0;
  for (std::int64_t i = 0; i < p.whole_shape.count(); ++i) {
    std::int64_t inner = 1;
    for (std::size_t d = p.part.dimension + 1; d < p.whole_shape.rank(); ++d)
      inner *= p.whole_shape[d];
    const std::int64_t at = i / inner % p.whole_shape[p.part.dimension];
    if (at < p.part.begin || at >= p.part.begin + p.part.length) continue;
    whole.replace(static_cast<std::size_t>(i) * size, size, part, taken * size, size);
    ++taken;
  }
  ASSERT_EQ(taken * size, part.size());
}

TEST_F(InitialTest, PartsTogetherAreTheWhole) {
  for (const Shape& shape : {Shape{12, 10}, Shape{30}, Shape{4, 6, 5}})
    for (const DataType type : {DataType::float64, DataType::float32, DataType::bfloat16})
      for (std::size_t dimension = 0; dimension < shape.rank(); ++dimension)
        for (const std::int64_t pieces : {2, 3}) {
          const Parameter whole = whole_parameter("w", shape);
          const std::string wanted = bytes_of(all(whole, type));
          std::string joined(wanted.size(), '\xee');
          const std::int64_t each = (shape[dimension] + pieces - 1) / pieces;
          for (std::int64_t begin = 0; begin < shape[dimension]; begin += each) {
            Parameter part = whole;
            part.part = {dimension, begin, std::min(each, shape[dimension] - begin)};
            put_part(part, bytes_of(all(part, type)), size_of(type), joined);
          }
          EXPECT_EQ(joined, wanted) << shape.to_string() << " by dimension " << dimension;
        }
}

TEST_F(InitialTest, RangesOfAPartAreTheirShareOfIt) {
  Parameter p = whole_parameter("w", {9, 8});
  p.part = {1, 2, 5};
  const std::string whole = bytes_of(all(p));
  for (std::int64_t begin = 0; begin <= p.count(); ++begin)
    for (std::int64_t end = begin; end <= p.count(); ++end)
      ASSERT_EQ(bytes_of(range(p, begin, end)),
                whole.substr(static_cast<std::size_t>(begin) * 4,
                             static_cast<std::size_t>(end - begin) * 4));
}

TEST_F(InitialTest, NormalHasItsMeanAndDeviation) {
  Parameter p = whole_parameter("model.embed_tokens.weight", {400, 500});
  p.initial.deviation = 0.02;
  const Tensor values = all(p, DataType::float64);
  double sum = 0, squares = 0;
  for (const double value : values.span<double>()) sum += value, squares += value * value;
  const double n = static_cast<double>(p.count());
  // Five deviations of the estimates themselves.
  EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 5 * 0.02 / std::sqrt(2 * n));
}

TEST_F(InitialTest, SeedAndNameDecide) {
  const Parameter a = whole_parameter("a", {64}), b = whole_parameter("b", {64});
  EXPECT_EQ(bytes_of(all(a)), bytes_of(all(a)));
  EXPECT_NE(bytes_of(all(a)), bytes_of(all(b)));
  EXPECT_NE(bytes_of(all(a)), bytes_of(all(a, DataType::float32, 6)));
}

TEST_F(InitialTest, OnesAndZerosAreThat) {
  Parameter p = whole_parameter("norm", {6});
  for (const DataType type :
       {DataType::float64, DataType::float32, DataType::float16, DataType::bfloat16}) {
    p.initial.kind = Initial::Kind::ones;
    const std::string ones = bytes_of(all(p, type));
    p.initial.kind = Initial::Kind::zeros;
    EXPECT_EQ(bytes_of(all(p, type)), std::string(6 * size_of(type), '\0'));
    visit(type, [&](auto element) {
      for (std::size_t i = 0; i < 6; ++i) {
        std::memcpy(&element, ones.data() + i * sizeof element, sizeof element);
        EXPECT_EQ(load(element), 1);
      }
    });
  }
}

TEST_F(InitialTest, AnEmptyPartIsFine) {
  Parameter p = whole_parameter("w", {9, 8});
  p.part = {0, 9, 0};
  EXPECT_EQ(all(p).count(), 0);
}

}  // namespace
}  // namespace tutti::training
