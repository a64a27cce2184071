// That sums of squares have the same bits in any order and grouping, and are the exact sums.
#include "training/optim/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tutti::training {
namespace {

template <typename T>
std::vector<T> wild_numbers(std::size_t count, int low_exponent, int high_exponent) {
  std::mt19937_64 random(count);
  std::vector<T> made(count);
  for (T& value : made) {
    const auto span = static_cast<std::uint64_t>(high_exponent - low_exponent);
    const int exponent = low_exponent + static_cast<int>(random() % span);
    const double fraction = static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    value = static_cast<T>(std::ldexp(fraction, exponent));
  }
  return made;
}

template <typename T>
ExactSum sum_of(const std::vector<T>& values) {
  ExactSum sum;
  sum.add_squares(std::span<const T>(values));
  return sum;
}

std::vector<std::int64_t> limbs_of(ExactSum sum) {
  const auto limbs = sum.limbs();
  return {limbs.begin(), limbs.end()};
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

template <typename T>
void expect_order_does_not_matter(std::vector<T> values) {
  const auto expected = limbs_of(sum_of(values));
  std::mt19937_64 random(7);
  for (int turn = 0; turn < 4; ++turn) {
    std::shuffle(values.begin(), values.end(), random);
    EXPECT_EQ(limbs_of(sum_of(values)), expected) << "turn " << turn;
    ExactSum one_by_one;
    for (const T value : values) one_by_one.add_square(value);
    EXPECT_EQ(limbs_of(one_by_one), expected) << "turn " << turn;
  }
}

TEST(ExactSum, TheOrderOfElementsChangesNoBit) {
  expect_order_does_not_matter(wild_numbers<float>(5000, -149, 127));
  expect_order_does_not_matter(wild_numbers<double>(5000, -600, 500));
}

TEST(ExactSum, AnySplitMergesToTheSameLimbs) {
  const auto values = wild_numbers<float>(3001, -140, 120);
  const auto expected = limbs_of(sum_of(values));
  for (const std::size_t part : {1u, 7u, 511u, 512u, 1000u, 3000u}) {
    ExactSum whole;
    for (std::size_t begin = 0; begin < values.size(); begin += part) {
      ExactSum piece;
      piece.add_squares(
          std::span<const float>(values).subspan(begin, std::min(part, values.size() - begin)));
      whole.merge(piece);
    }
    EXPECT_EQ(limbs_of(whole), expected) << "parts of " << part;
  }
}

TEST(ExactSum, LimbsOfManyRanksMayBeAddedAsIntegers) {
  const auto values = wild_numbers<float>(600, -149, 127);
  ExactSum each = sum_of(values);
  constexpr std::int64_t kRanks = std::int64_t{1} << 20;
  ExactSum whole = each;
  for (std::int64_t& limb : whole.limbs()) limb *= kRanks;
  EXPECT_EQ(bits(whole.value()), bits(each.value() * static_cast<double>(kRanks)));
  ExactSum grouped = each;  // the same by doubling, carried each time
  for (int i = 0; i < 20; ++i) grouped.merge(ExactSum(grouped));
  EXPECT_EQ(limbs_of(whole), limbs_of(grouped));
}

// With a few bits of exponent the sum fits into a long double's 64 bits, or an integer's.
TEST(ExactSum, EqualsASumThatCanBeComputedOtherwise) {
  std::mt19937_64 random(3);
  std::vector<float> values(200000);
  std::int64_t expected = 0;
  for (float& value : values) {
    const auto integer = static_cast<std::int64_t>(random() % 4001) - 2000;
    value = static_cast<float>(integer);
    expected += integer * integer;
  }
  EXPECT_EQ(sum_of(values).value(), static_cast<double>(expected));
  const std::vector<double> doubles(values.begin(), values.end());
  EXPECT_EQ(limbs_of(sum_of(doubles)), limbs_of(sum_of(values)));
}

TEST(ExactSum, IsWithinOneRoundingOfALongDoubleSum) {
  const auto values = wild_numbers<float>(100000, -20, 10);
  long double expected = 0;
  for (const float value : values) expected += static_cast<long double>(value) * value;
  const double got = sum_of(values).value();
  EXPECT_NEAR(got, static_cast<double>(expected), static_cast<double>(expected) * 1e-14);
}

TEST(ExactSum, KeepsWhatFloatsWouldLose) {
  // 2^120 and 2^-120 squared lie 480 bits apart.
  ExactSum sum;
  sum.add_square(0x1p120f);
  sum.add_square(0x1p-120f);
  EXPECT_EQ(sum.value(), 0x1p240);
  ExactSum only_large;
  only_large.add_square(0x1p120f);
  EXPECT_NE(limbs_of(sum), limbs_of(only_large));
}

TEST(ExactSum, RoundsToNearestWithTiesToEven) {
  struct Case {
    std::vector<double> values;
    double expected;
  };
  const double ulp_root = 0x1p-26;  // its square is one ulp of numbers from 1 to 2
  const double half = 0x1p-27;      // its square is a quarter of that: 2^-54
  const double tiny = 0x1p-500;
  const Case cases[] = {
      {{1, ulp_root}, 1 + 0x1p-52},
      {{1, half, half}, 1},                             // a tie, to even
      {{1, half, half, tiny}, 1 + 0x1p-52},             // just above the tie
      {{1, ulp_root, half, half}, 1 + 0x1p-51},         // a tie, to even
      {{1, half, tiny}, 1},                             // below it
      {{0x1p-537}, 0x1p-1074},                          // the smallest number
      {{0x1p-537, 0x1p-537, 0x1p-537}, 3 * 0x1p-1074},  // exact below normal numbers
      {{0x1p511, 0x1p511, 0x1p511}, 3 * 0x1p1022},
      {{0x1p511, 0x1p511, 0x1p511, 0x1p511},
       std::numeric_limits<double>::infinity()},  // 2^1024: above the range
  };
  for (const Case& c : cases) EXPECT_EQ(bits(sum_of(c.values).value()), bits(c.expected));
}

TEST(ExactSum, SubnormalFloatsCount) {
  const float smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sum_of(std::vector<float>{smallest}).value(), 0x1p-298);
  EXPECT_EQ(sum_of(std::vector<float>(1024, smallest)).value(), 0x1p-288);
  EXPECT_EQ(sum_of(std::vector<float>(1024, 0x1p-140f)).value(), 0x1p-270);
}

TEST(ExactSum, NothingIsZero) {
  EXPECT_EQ(bits(ExactSum().value()), bits(0.0));
  EXPECT_EQ(bits(sum_of(std::vector<float>(1000, -0.0f)).value()), bits(0.0));
}

TEST(ExactSum, InfinityAndNanAreSeenInAnyPlace) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t count : {8u, 2000u})
    for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
      std::vector<float> values(count, 1.0f);
      values[at] = -infinity;
      const ExactSum infinite = sum_of(values);
      EXPECT_FALSE(infinite.finite());
      EXPECT_EQ(infinite.value(), infinity);
      values[count - 1 - at / 2] = nan;
      ExactSum both = sum_of(values);
      EXPECT_TRUE(std::isnan(both.value()));
      ExactSum merged = sum_of(std::vector<float>{1});
      merged.merge(both);
      EXPECT_TRUE(std::isnan(merged.value()));
    }
  EXPECT_TRUE(sum_of(std::vector<float>(2000, std::numeric_limits<float>::max())).finite());
}

TEST(ExactSum, SquaresOfDoublesBeyondTheRangeAreInfinite) {
  EXPECT_EQ(sum_of(std::vector<double>{0x1p512}).value(), HUGE_VAL);
  EXPECT_TRUE(std::isnan(sum_of(std::vector<double>{std::nan("")}).value()));
  EXPECT_TRUE(std::isnan(sum_of(std::vector<double>{-std::nan("")}).value()));
}

TEST(ExactSum, FlagsOfRanksAreOneAfterTheyAreAdded) {
  ExactSum sum = sum_of(std::vector<float>{HUGE_VALF});
  for (std::int64_t& limb : sum.limbs()) limb *= 1000;
  EXPECT_EQ(limbs_of(sum), limbs_of(sum_of(std::vector<float>{HUGE_VALF})));
  EXPECT_EQ(sum.value(), HUGE_VAL);
}

// More elements than a bin could hold without being emptied.
TEST(ExactSum, ManyLargeMantissasDoNotOverflowBins) {
  const float value = std::nextafter(2.0f, 0.0f);  // all bits of the mantissa set
  const std::size_t count = (std::size_t{1} << 18) + 12345;
  const double square = static_cast<double>(value) * value;
  const double expected = static_cast<double>(static_cast<long double>(square) * count);
  EXPECT_EQ(sum_of(std::vector<float>(count, value)).value(), expected);
}

}  // namespace
}  // namespace tutti::training
