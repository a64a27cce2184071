// Conversions of 16- and 8-bit floating-point numbers, by their bits.
#include "tutti/numeric.hpp"

namespace tutti {
namespace {

// What one must know of an 8-bit format to narrow to it.
struct Float8 {
  int fraction_bits;
  std::uint32_t smallest_exponent;  // of a normal number, in float's bias
  float largest;
  std::uint8_t nan;
};
constexpr Float8 kE4m3 = {3, 127 - 6, 448.0f, 0x7f};
constexpr Float8 kE5m2 = {2, 127 - 14, 57344.0f, 0x7e};

std::uint8_t narrow(float value, const Float8& format) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | format.nan;
  const std::uint32_t largest = std::bit_cast<std::uint32_t>(format.largest);
  const std::uint32_t kept = magnitude < largest ? magnitude : largest;
  // A number is told in units of its last place, which does not shrink below the normal numbers.
  // Next to 2^(exponent + dropped), that is the last place of a float: the adder rounds for us.
  const int dropped = 23 - format.fraction_bits;
  std::uint32_t exponent = kept >> 23;
  if (exponent < format.smallest_exponent) exponent = format.smallest_exponent;
  const std::uint32_t large = (exponent + static_cast<std::uint32_t>(dropped)) << 23;
  const float sum = std::bit_cast<float>(kept) + std::bit_cast<float>(large);
  const std::uint32_t units = std::bit_cast<std::uint32_t>(sum) - large;
  const std::uint32_t binade = (exponent - format.smallest_exponent) << format.fraction_bits;
  return static_cast<std::uint8_t>(sign | (binade + units));
}

}  // namespace

float to_float(bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

bfloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U)  // NaN: rounding could carry it into infinity
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  const std::uint32_t rounding = 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((bits + rounding) >> 16)};
}

float to_float(float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  // Zero and subnormals: the value is mantissa * 2^-24, which float represents exactly.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

float16 to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U)  // NaN: keep the upper payload, make it quiet
    return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU))};
  if (magnitude >= 0x477ff000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  if (magnitude < 0x38800000U) {
    // Subnormal result: adding 0.5 puts the half's last place at the float's last place, so the
    // hardware's own rounding to nearest even does the work.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
  }
  const std::uint32_t rounding = 0xfffU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | ((magnitude + rounding - 0x38000000U) >> 13))};
}

float to_float(float8_e5m2 value) {
  return to_float(float16{static_cast<std::uint16_t>(value.bits << 8)});
}

float to_float(float8_e4m3 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x80U) << 8;
  const std::uint32_t magnitude = value.bits & 0x7fU;
  if (magnitude == 0x7fU) return std::bit_cast<float>((sign << 16) | 0x7fc00000U);
  // As a float16 the bits mean 2^-8 of the value, subnormals included: the biases are 7 and 15.
  return to_float(float16{static_cast<std::uint16_t>(sign | (magnitude << 7))}) * 256.0f;
}

float8_e5m2 to_float8_e5m2(float value) { return {narrow(value, kE5m2)}; }
float8_e4m3 to_float8_e4m3(float value) { return {narrow(value, kE4m3)}; }

}  // namespace tutti
