// Conversions of the 8-bit formats, against a search through all 256 codes that knows of a format
// only its definition: sign, exponent, fraction.
#include "tutti/numeric.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tutti {
namespace {

struct E4M3 {
  using Type = float8_e4m3;
  static constexpr int kFractionBits = 3, kBias = 7, kLargest = 0x7e, kInfinity = -1;
  static Type narrow(float value) { return to_float8_e4m3(value); }
};
struct E5M2 {
  using Type = float8_e5m2;
  static constexpr int kFractionBits = 2, kBias = 15, kLargest = 0x7b, kInfinity = 0x7c;
  static Type narrow(float value) { return to_float8_e5m2(value); }
};

// What a code of a positive finite number means.
template <typename Format>
double meaning(int code) {
  const int scale = 1 << Format::kFractionBits;
  const int exponent = code / scale;
  const int significand = code % scale + (exponent > 0 ? scale : 0);
  return std::ldexp(significand, std::max(exponent, 1) - Format::kBias - Format::kFractionBits);
}

// The code of the nearest number; of two, the even one.
template <typename Format>
int nearest(double magnitude) {
  int best = 0;
  for (int code = 1; code <= Format::kLargest; ++code) {
    const double here = std::fabs(meaning<Format>(code) - magnitude);
    const double there = std::fabs(meaning<Format>(best) - magnitude);
    if (here < there || (here == there && code % 2 == 0)) best = code;
  }
  return best;
}

template <typename Format>
class Float8 : public ::testing::Test {
 protected:
  using Type = typename Format::Type;

  static void expect_nearest(float magnitude) {
    const int expected = nearest<Format>(static_cast<double>(magnitude));
    EXPECT_EQ(Format::narrow(magnitude).bits, expected) << magnitude;
    EXPECT_EQ(Format::narrow(-magnitude).bits, expected | 0x80) << -magnitude;
  }
};
using Formats = ::testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Float8, Formats);

TYPED_TEST(Float8, EveryCodeMeansWhatTheFormatSaysAndComesBack) {
  for (int code = 0; code < 256; ++code) {
    const int magnitude = code & 0x7f;
    const float value = to_float(typename TypeParam::Type{static_cast<std::uint8_t>(code)});
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    if (magnitude == TypeParam::kInfinity) {
      EXPECT_TRUE(std::isinf(value)) << code;
    } else if (magnitude > TypeParam::kLargest) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_TRUE(std::isnan(to_float(TypeParam::narrow(value)))) << code;
    } else {
      EXPECT_EQ(std::fabs(static_cast<double>(value)), meaning<TypeParam>(magnitude)) << code;
      EXPECT_EQ(TypeParam::narrow(value).bits, code);
    }
  }
}

// Narrowing is constant between the middles of neighbours: so much holds it everywhere.
TYPED_TEST(Float8, TheMiddleOfNeighboursIsEvenAndBesideItIsNearer) {
  for (int code = 0; code < TypeParam::kLargest; ++code) {
    const double sum = meaning<TypeParam>(code) + meaning<TypeParam>(code + 1);
    const auto middle = static_cast<float>(sum / 2);
    this->expect_nearest(middle);
    this->expect_nearest(std::nextafter(middle, 0.0f));
    this->expect_nearest(std::nextafter(middle, 1e6f));
    EXPECT_EQ(TypeParam::narrow(middle).bits % 2, 0) << code;
  }
}

TYPED_TEST(Float8, AnyFloatBecomesTheNearest) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    // Exponents from far below to far above; any fraction.
    const auto exponent = static_cast<std::uint32_t>(127 - 24 + random() % 48);
    const auto fraction = static_cast<std::uint32_t>(random() >> 9);
    this->expect_nearest(std::bit_cast<float>((exponent << 23) | fraction));
  }
  // A float16 between would round these to ties first.
  this->expect_nearest(std::nextafter(1.0f + 1.0f / 16, 2.0f));
  this->expect_nearest(std::nextafter(1.0f + 1.0f / 8, 2.0f));
}

TYPED_TEST(Float8, LimitsSaturate) {
  using Limits = std::numeric_limits<float>;
  for (const float large : {Limits::infinity(), Limits::max(), 61440.0f, 1e5f}) {
    EXPECT_EQ(TypeParam::narrow(large).bits, TypeParam::kLargest) << large;
    EXPECT_EQ(TypeParam::narrow(-large).bits, TypeParam::kLargest | 0x80) << large;
  }
  for (const float small : {0.0f, Limits::denorm_min(), Limits::min(), 1e-9f}) {
    EXPECT_EQ(TypeParam::narrow(small).bits, 0) << small;
    EXPECT_EQ(TypeParam::narrow(-small).bits, 0x80) << small;
  }
  for (const std::uint32_t nan : {0x7f800001U, 0x7fffffffU, 0xffc00000U, 0xff800001U})
    EXPECT_TRUE(std::isnan(to_float(TypeParam::narrow(std::bit_cast<float>(nan))))) << nan;
}

TEST(Float8Numbers, AreThoseOfThePublishedTables) {
  EXPECT_EQ(to_float(float8_e4m3{0x38}), 1.0f);
  EXPECT_EQ(to_float(float8_e4m3{0x7e}), 448.0f);
  EXPECT_EQ(to_float(float8_e4m3{0x08}), 0x1p-6f);
  EXPECT_EQ(to_float(float8_e4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(to_float(float8_e5m2{0x3c}), 1.0f);
  EXPECT_EQ(to_float(float8_e5m2{0x7b}), 57344.0f);
  EXPECT_EQ(to_float(float8_e5m2{0x04}), 0x1p-14f);
  EXPECT_EQ(to_float(float8_e5m2{0x01}), 0x1p-16f);
}

}  // namespace
}  // namespace tutti
