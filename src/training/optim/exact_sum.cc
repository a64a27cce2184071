// exact_sum.cc: see exact_sum.hpp.
#include "training/optim/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

constexpr int kLowestExponent = -1074;  // of two: what bit 0 of limb 0 is worth
constexpr std::uint64_t kLow = 0xffffffffu;

// An addition brings a limb at most 2^33; carries are made before 2^62.
constexpr std::uint32_t kPendingMax = std::uint32_t{1} << 29;

// Of a float32: value = mantissa * 2^(max(exponent, 1) - 150); a square's lowest bit is worth
// 2^(2 * max(exponent, 1) - 300).
struct FloatParts {
  unsigned exponent;  // 0 .. 255
  std::uint64_t mantissa;
};
constexpr unsigned kFloatSpecial = 255;  // the exponent of infinities and NaN

FloatParts parts_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const unsigned exponent = (bits >> 23) & 0xffu;
  return {exponent, (bits & 0x7fffffu) | (exponent != 0 ? 0x800000u : 0u)};
}

unsigned bit_of_square(unsigned float_exponent) {
  const int lowest = 2 * static_cast<int>(std::max(float_exponent, 1u)) - 300;
  return static_cast<unsigned>(lowest - kLowestExponent);
}

// Squares of mantissas have 48 bits: 2^16 of them fit in a bin. Four sets of bins, because
// neighbours often have the same exponent and would wait for each other's addition.
constexpr std::size_t kLanes = 4;
constexpr std::size_t kBlock = kLanes << 16;
constexpr std::size_t kWorthBins = 512;  // fewer elements are added one by one

}  // namespace

void ExactSum::add_at(std::uint64_t magnitude, unsigned bit) {
  const std::size_t i = bit / 32;
  const unsigned shift = bit % 32;
  const std::uint64_t low = (magnitude & kLow) << shift;
  const std::uint64_t high = (magnitude >> 32) << shift;
  limbs_[i] += static_cast<std::int64_t>(low & kLow);
  limbs_[i + 1] += static_cast<std::int64_t>((low >> 32) + (high & kLow));
  limbs_[i + 2] += static_cast<std::int64_t>(high >> 32);
  if (++pending_ >= kPendingMax) normalise();
}

void ExactSum::add_square(float value) {
  const FloatParts parts = parts_of(value);
  if (parts.exponent == kFloatSpecial) return flag(std::isnan(value));
  add_at(parts.mantissa * parts.mantissa, bit_of_square(parts.exponent));
}

void ExactSum::add_square(double value) {
  const double square = value * value;
  const auto bits = std::bit_cast<std::uint64_t>(square);
  const auto exponent = static_cast<unsigned>(bits >> 52);  // its sign is plus, but for NaN
  if (!std::isfinite(square)) return flag(std::isnan(square));
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  if (exponent == 0)
    add_at(fraction, 0);
  else
    add_at(fraction | std::uint64_t{1} << 52, exponent - 1);
}

// One bin for each exponent: all squares of one exponent have the same lowest bit, so their
// mantissas are added as integers, and there are few numbers left to add to the limbs.
void ExactSum::add_block(std::span<const float> values) {
  std::array<std::array<std::uint64_t, 256>, kLanes> bins{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const FloatParts parts = parts_of(values[i]);
    bins[i % kLanes][parts.exponent] += parts.mantissa * parts.mantissa;
  }
  bool special = false;
  for (const auto& lane : bins) {
    special = special || lane[kFloatSpecial] != 0;
    for (unsigned exponent = 0; exponent < kFloatSpecial; ++exponent)
      if (lane[exponent] != 0) add_at(lane[exponent], bit_of_square(exponent));
  }
  if (!special) return;
  for (const float value : values)
    if (!std::isfinite(value)) flag(std::isnan(value));
}

void ExactSum::add_squares(std::span<const float> values) {
  while (values.size() >= kWorthBins) {
    const std::size_t count = std::min(values.size(), kBlock);
    add_block(values.first(count));
    values = values.subspan(count);
  }
  for (const float value : values) add_square(value);
}

void ExactSum::add_squares(std::span<const double> values) {
  for (const double value : values) add_square(value);
}

void ExactSum::add_squares(const Tensor& values) {
  if (values.count() == 0) return;
  if (values.type() == DataType::float64)
    add_squares(std::span<const double>(values.span<double>()));
  else
    add_squares(std::span<const float>(values.span<float>()));
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum normal = other;
  normal.normalise();
  normalise();
  for (std::size_t i = 0; i < kLimbs; ++i) limbs_[i] += normal.limbs_[i];
  normalise();
}

void ExactSum::normalise() {
  for (std::size_t i = 0; i + 1 < kDigits; ++i) {
    limbs_[i + 1] += limbs_[i] >> 32;
    limbs_[i] &= static_cast<std::int64_t>(kLow);
  }
  limbs_[kInfinite] = limbs_[kInfinite] != 0 ? 1 : 0;
  limbs_[kNan] = limbs_[kNan] != 0 ? 1 : 0;
  pending_ = 0;
}

std::span<std::int64_t> ExactSum::limbs() {
  normalise();
  return limbs_;
}

double ExactSum::value() const {
  if (limbs_[kNan] != 0) return std::numeric_limits<double>::quiet_NaN();
  if (limbs_[kInfinite] != 0) return std::numeric_limits<double>::infinity();
  ExactSum normal = *this;
  normal.normalise();
  const auto digit = [&](std::size_t i) { return static_cast<std::uint64_t>(normal.limbs_[i]); };
  std::size_t top = kDigits - 1;
  while (top > 0 && digit(top) == 0) --top;
  if (digit(top) == 0) return 0;
  TRAINING_CHECK(digit(top) <= kLow, "limbs that are no sum of squares");

  // The 64 bits from the highest one on; its last bit also stands for all that are below it, which
  // is enough for the conversion to round as the whole number would.
  const auto empty = static_cast<unsigned>(std::countl_zero(digit(top)) - 32);
  std::uint64_t window = (digit(top) << 32 | (top >= 1 ? digit(top - 1) : 0)) << empty;
  bool below = false;
  if (top >= 2) {
    const std::uint64_t next = digit(top - 2) << empty;
    window |= next >> 32;
    below = (next & kLow) != 0;
    for (std::size_t i = 0; i + 2 < top; ++i) below = below || digit(i) != 0;
  }
  if (below) window |= 1;
  const int exponent = 32 * (static_cast<int>(top) - 1) - static_cast<int>(empty);
  return std::ldexp(static_cast<double>(window), exponent + kLowestExponent);
}

}  // namespace tutti::training
