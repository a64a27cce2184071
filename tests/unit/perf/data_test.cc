// The data of the perf tools must make #wrong mean what it says: no false alarm in whatever order
// a library combines contributions, and an alarm for every contribution that is lost or doubled.
#include "perf/common/data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tutti/numeric.hpp"

namespace tutti::perf {
namespace {

constexpr std::size_t kElements = 24;

// Arithmetic as a library would do it: two values in, one value of the same type out. Integers go
// through unsigned numbers, because damaged contributions may overflow.
template <typename T>
struct Plain {
  static T add(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
  static T multiply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
    } else {
      return a * b;
    }
  }
  static T divide(T a, int n) {
    if constexpr (std::is_integral_v<T>) {  // ranks may be more than T can count
      using Wide = std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>;
      return static_cast<T>(static_cast<Wide>(a) / static_cast<Wide>(n));
    } else {
      return a / static_cast<T>(n);
    }
  }
  static bool less(T a, T b) { return a < b; }
};

template <typename Half, Half (*narrow)(float)>
struct Narrow {
  static Half add(Half a, Half b) { return narrow(to_float(a) + to_float(b)); }
  static Half multiply(Half a, Half b) { return narrow(to_float(a) * to_float(b)); }
  static Half divide(Half a, int n) { return narrow(to_float(a) / static_cast<float>(n)); }
  static bool less(Half a, Half b) { return to_float(a) < to_float(b); }
};
template <>
struct Plain<bfloat16> : Narrow<bfloat16, to_bfloat16> {};
template <>
struct Plain<float16> : Narrow<float16, to_float16> {};
template <>
struct Plain<float8_e4m3> : Narrow<float8_e4m3, to_float8_e4m3> {};
template <>
struct Plain<float8_e5m2> : Narrow<float8_e5m2, to_float8_e5m2> {};

template <typename T>
T combine(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return Plain<T>::add(a, b);
    case ReduceOp::prod:
      return Plain<T>::multiply(a, b);
    case ReduceOp::min:
      return Plain<T>::less(b, a) ? b : a;
    case ReduceOp::max:
      return Plain<T>::less(a, b) ? b : a;
  }
  return a;
}

// Combines the values two at a time, always two that are picked at random: any order, any grouping.
template <typename T>
T combine_at_random(std::vector<T> values, ReduceOp op, int ranks, std::mt19937& random) {
  while (values.size() > 1) {
    std::shuffle(values.begin(), values.end(), random);
    const T last = values.back();
    values.pop_back();
    values.back() = combine(values.back(), last, op);
  }
  return op == ReduceOp::avg ? Plain<T>::divide(values[0], ranks) : values[0];
}

template <typename T>
std::vector<T> filled(const Pattern& pattern, Rank source, std::size_t count = kElements) {
  std::vector<T> values(count);
  pattern.fill(values.data(), source, 0, count);
  return values;
}

// contributions[element][rank]
template <typename T>
std::vector<std::vector<T>> contributions(const Pattern& pattern, int ranks,
                                          std::size_t count = kElements) {
  std::vector<std::vector<T>> by_element(count);
  for (Rank rank = 0; rank < ranks; ++rank) {
    const auto values = filled<T>(pattern, rank, count);
    for (std::size_t i = 0; i < count; ++i) by_element[i].push_back(values[i]);
  }
  return by_element;
}

// How many ranks can contribute more than 0 to a sum, if not more than 16.
template <typename T>
constexpr int most_summands() {
  if constexpr (std::is_same_v<T, float8_e5m2>) return 7;
  if constexpr (std::is_same_v<T, float8_e4m3>) return 15;
  return 16;
}

template <typename T>
class DataTest : public ::testing::Test {};
using ElementTypes =
    ::testing::Types<float, double, std::int8_t, std::uint8_t, std::int32_t, std::uint32_t,
                     std::int64_t, std::uint64_t, bfloat16, float16, float8_e4m3, float8_e5m2>;
TYPED_TEST_SUITE(DataTest, ElementTypes);

TYPED_TEST(DataTest, AnyOrderAndGroupingGivesTheExpectedBits) {
  std::mt19937 random(1);
  for (const ReduceOp op : kAllReduceOps) {
    for (int ranks = 1; ranks <= 16; ++ranks) {
      const auto pattern = Pattern::reduced(data_type_of<TypeParam>(), op, ranks, 7);
      const auto by_element = contributions<TypeParam>(pattern, ranks);
      for (int round = 0; round < 20; ++round) {
        std::vector<TypeParam> results;
        for (const auto& values : by_element)
          results.push_back(combine_at_random(values, op, ranks, random));
        EXPECT_EQ(pattern.compare(results.data(), kReduced, 0, kElements).count, 0u)
            << to_string(op) << " of " << ranks << " ranks";
      }
    }
  }
}

// The sum of every subset, built up one contribution at a time in two orders: the same bits, so
// that no grouping can round.
TYPED_TEST(DataTest, EverySubsetOfSummandsIsExact) {
  constexpr std::size_t ranks = 13;
  const auto pattern = Pattern::reduced(data_type_of<TypeParam>(), ReduceOp::sum, ranks, 3);
  for (const auto& values : contributions<TypeParam>(pattern, ranks)) {
    for (unsigned subset = 1; subset < 1u << ranks; ++subset) {
      TypeParam forwards{}, backwards{};
      for (std::size_t i = 0; i < ranks; ++i) {
        if ((subset >> i & 1) != 0) forwards = Plain<TypeParam>::add(forwards, values[i]);
        const std::size_t j = ranks - 1 - i;
        if ((subset >> j & 1) != 0) backwards = Plain<TypeParam>::add(backwards, values[j]);
      }
      ASSERT_EQ(std::memcmp(&forwards, &backwards, sizeof(TypeParam)), 0);
    }
  }
}

TYPED_TEST(DataTest, ManyRanksStayExact) {
  std::mt19937 random(2);
  for (const ReduceOp op : kAllReduceOps) {
    for (const int ranks : {33, 255, 256, 257, 1000, 1024}) {
      const auto pattern = Pattern::reduced(data_type_of<TypeParam>(), op, ranks, 11);
      const auto by_element = contributions<TypeParam>(pattern, ranks);
      std::vector<TypeParam> results;
      for (std::size_t i = 0; i < 4; ++i)
        results.push_back(combine_at_random(by_element[i], op, ranks, random));
      EXPECT_EQ(pattern.compare(results.data(), kReduced, 0, results.size()).count, 0u)
          << to_string(op) << " of " << ranks << " ranks";
    }
  }
}

// Sums and products: whatever rank's contribution is missing or counted twice, every element shows
// it. (avg divides before comparing, which may hide it in a rounding; sum is the witness.) Of more
// ranks than an 8-bit sum can count, some contribute nothing.
TYPED_TEST(DataTest, LostOrDoubledContributionIsDetectedInEveryElement) {
  std::mt19937 random(3);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
    const int most = op == ReduceOp::sum ? most_summands<TypeParam>() : 16;
    for (int ranks = 2; ranks <= most; ++ranks) {
      const auto pattern = Pattern::reduced(data_type_of<TypeParam>(), op, ranks, 5);
      const auto by_element = contributions<TypeParam>(pattern, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<TypeParam> lost, doubled;
        for (auto values : by_element) {
          values.push_back(values[static_cast<std::size_t>(rank)]);
          doubled.push_back(combine_at_random(values, op, ranks, random));
          values.pop_back();
          values.erase(values.begin() + rank);
          lost.push_back(combine_at_random(values, op, ranks, random));
        }
        EXPECT_EQ(pattern.compare(lost.data(), kReduced, 0, kElements).count, kElements)
            << to_string(op) << " without rank " << rank << " of " << ranks;
        EXPECT_EQ(pattern.compare(doubled.data(), kReduced, 0, kElements).count, kElements)
            << to_string(op) << " with rank " << rank << " of " << ranks << " twice";
      }
    }
  }
}

// One rank counted twice in place of another: shows in some element, whichever two they are. Where
// few bits let few contributions differ, it takes more elements.
TYPED_TEST(DataTest, ExchangedContributionIsDetected) {
  std::mt19937 random(4);
  constexpr std::size_t elements = most_summands<TypeParam>() < 16 ? 96 : kElements;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
    for (const int ranks : {2, 3, 8, 16}) {
      const auto pattern = Pattern::reduced(data_type_of<TypeParam>(), op, ranks, 5);
      const auto by_element = contributions<TypeParam>(pattern, ranks, elements);
      for (std::size_t from = 0; from < by_element[0].size(); ++from) {
        for (std::size_t to = 0; to < by_element[0].size(); ++to) {
          if (from == to) continue;
          std::vector<TypeParam> results;
          for (auto values : by_element) {
            values[to] = values[from];
            results.push_back(combine_at_random(values, op, ranks, random));
          }
          EXPECT_GT(pattern.compare(results.data(), kReduced, 0, elements).count, 0u)
              << to_string(op) << " with rank " << from << " in place of " << to << " of " << ranks;
        }
      }
    }
  }
}

TYPED_TEST(DataTest, LostExtremeIsDetected) {
  constexpr int ranks = 5;
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    std::mt19937 random(6);
    const auto pattern = Pattern::reduced(data_type_of<TypeParam>(), op, ranks, 9);
    const auto by_element = contributions<TypeParam>(pattern, ranks);
    std::size_t detected = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<TypeParam> results;
      for (auto values : by_element) {
        values.erase(values.begin() + rank);
        results.push_back(combine_at_random(values, op, ranks, random));
      }
      const auto wrong = pattern.compare(results.data(), kReduced, 0, kElements).count;
      EXPECT_GT(wrong, 0u) << to_string(op) << " without rank " << rank;
      detected += wrong;
    }
    EXPECT_EQ(detected, kElements) << "each element has one rank that decides it";
  }
}

TYPED_TEST(DataTest, OneWrongBitIsFoundAtItsPlace) {
  const auto type = data_type_of<TypeParam>();
  for (const auto& [pattern, source] :
       {std::pair(Pattern::moved(type, 1), Rank{2}),
        std::pair(Pattern::reduced(type, ReduceOp::sum, 3, 1), kReduced)}) {
    std::vector<TypeParam> values(3000);
    pattern.fill(values.data(), source, 100, values.size());
    EXPECT_EQ(pattern.compare(values.data(), source, 100, values.size()).count, 0u);
    reinterpret_cast<unsigned char*>(&values[2500])[0] ^= 1;
    const auto mismatch = pattern.compare(values.data(), source, 100, values.size());
    EXPECT_EQ(mismatch.count, 1u);
    EXPECT_EQ(mismatch.first, 2500u);
  }
}

TYPED_TEST(DataTest, MovedDataDependOnSeedSourceAndIndex) {
  const auto type = data_type_of<TypeParam>();
  constexpr std::size_t count = 4096;
  const auto values = filled<TypeParam>(Pattern::moved(type, 1), 0, count);
  const auto shifted = filled<TypeParam>(Pattern::moved(type, 1), 0, count + 1);
  // Elements that agree by accident, at most: four times as many bytes as can be expected.
  const auto chance = sizeof(TypeParam) == 1 ? count / 64 : count / 256;
  EXPECT_GT(Pattern::moved(type, 2).compare(values.data(), 0, 0, count).count, count - chance);
  EXPECT_GT(Pattern::moved(type, 1).compare(values.data(), 1, 0, count).count, count - chance);
  EXPECT_GT(Pattern::moved(type, 1).compare(shifted.data() + 1, 0, 0, count).count, count - chance);
}

TEST(Data, AveragesOfFloatsAloneMayBeTwoBitPatternsOff) {
  EXPECT_EQ(Pattern::reduced(DataType::float32, ReduceOp::avg, 3, 1).tolerance(), 2u);
  EXPECT_EQ(Pattern::reduced(DataType::int32, ReduceOp::avg, 3, 1).tolerance(), 0u);
  EXPECT_EQ(Pattern::reduced(DataType::float32, ReduceOp::sum, 3, 1).tolerance(), 0u);
  EXPECT_EQ(Pattern::reduced(DataType::float8_e4m3, ReduceOp::avg, 3, 1).tolerance(), 0u);
  EXPECT_EQ(Pattern::moved(DataType::float32, 1).tolerance(), 0u);

  const auto pattern = Pattern::reduced(DataType::float32, ReduceOp::avg, 3, 1);
  auto values = filled<float>(pattern, kReduced);
  const auto off_by = [&](std::uint32_t distance) {
    auto moved = std::bit_cast<std::uint32_t>(values[0]) + distance;
    return pattern.compare(&moved, kReduced, 0, 1).count;
  };
  EXPECT_EQ(off_by(2), 0u);
  EXPECT_EQ(off_by(3), 1u);
}

TEST(Data, SharesAreAsDifferentAsTheBudgetAllows) {
  EXPECT_EQ(make_shares(4, 10).of, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(make_shares(4, 9).of, (std::vector<std::uint64_t>{1, 2, 3, 1}));
  EXPECT_EQ(make_shares(4, 5).of, (std::vector<std::uint64_t>{1, 1, 1, 1}));
  EXPECT_EQ(make_shares(4, 2).of, (std::vector<std::uint64_t>{1, 1, 0, 0}));
  EXPECT_EQ(make_shares(0, 2).total, 0u);
  for (int n = 1; n <= 1024; ++n) {
    const auto shares = make_shares(n, 256);
    std::uint64_t total = 0;
    for (const auto share : shares.of) total += share;
    EXPECT_EQ(total, shares.total);
    EXPECT_LE(total, 256u) << n;
  }
}

}  // namespace
}  // namespace tutti::perf
