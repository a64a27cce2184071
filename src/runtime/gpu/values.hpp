// values.hpp: element types as a GPU computes with them: how each gets from its bits in memory to a
// number that one can compute with, and back, and what each operation does to two such numbers.
//
// The results are those of the host's kernels (runtime/kernels/kernels.hpp says what they are):
// 16- and 8-bit floats are float32 within a step, integers wrap around, a NaN wins. To be compiled
// without contraction of products and sums (nvcc: -fmad=false).
//
// Knows nothing of threads, vectors and memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/gpu/qualifiers.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

template <class To, class From>
TUTTI_HOST_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// ---- 16-bit floats; numeric.hpp says how they round ----

TUTTI_HOST_DEVICE float widen_float16(std::uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1fU) return bits_as<float>(sign | 0x7f800000U | fraction << 13);
  if (exponent != 0) return bits_as<float>(sign | (exponent + 112U) << 23 | fraction << 13);
  return bits_as<float>(sign | bits_as<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
#endif
}

TUTTI_HOST_DEVICE std::uint16_t narrow_float16(float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
#else
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {
    // Next to 0.5 the last place of a float is that of a subnormal: the adder rounds for us.
    const float shifted = bits_as<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_as<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounding = 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (magnitude + rounding - 0x38000000U) >> 13);
#endif
}

TUTTI_HOST_DEVICE float widen_bfloat16(std::uint16_t bits) {
  return bits_as<float>(static_cast<std::uint32_t>(bits) << 16);
}

TUTTI_HOST_DEVICE std::uint16_t narrow_bfloat16(float value) {
#if defined(__CUDA_ARCH__)
  std::uint16_t result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
#else
  const auto bits = bits_as<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
#endif
}

// ---- 8-bit floats ----

// kFraction bits of fraction; numbers below 2^(kSmallest-127) are subnormal; kLargest is the
// largest number as a float, kNaN the code of a NaN.
template <int kFraction, std::uint32_t kSmallest, std::uint32_t kLargest, std::uint32_t kNaN>
TUTTI_HOST_DEVICE std::uint8_t narrow_float8(float value) {
  constexpr std::uint32_t kDropped = 23 - kFraction;
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint8_t>(sign | kNaN);
  const std::uint32_t kept = magnitude < kLargest ? magnitude : kLargest;
  // A number is told in units of its last place, which does not shrink below the normal numbers;
  // next to `large` that is the last place of a float: the adder rounds for us.
  const std::uint32_t exponent = (kept >> 23) < kSmallest ? kSmallest : kept >> 23;
  const std::uint32_t large = (exponent + kDropped) << 23;
  const float sum = bits_as<float>(kept) + bits_as<float>(large);
  const std::uint32_t units = bits_as<std::uint32_t>(sum) - large;
  return static_cast<std::uint8_t>(sign | (((exponent - kSmallest) << kFraction) + units));
}

TUTTI_HOST_DEVICE float widen_e4m3(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80U) << 8;
  const std::uint32_t magnitude = bits & 0x7fU;
  if (magnitude == 0x7fU) return bits_as<float>(sign << 16 | 0x7fc00000U);
  // As a float16 the bits mean 2^-8 of the value: the biases are 7 and 15.
  return widen_float16(static_cast<std::uint16_t>(sign | magnitude << 7)) * 256.0f;
}

// ---- Formats ----

// Bits: what lies in memory. Wide: what is computed with. divide() rounds as an average does; it
// sees sums as wide as they are, and wraps them to the type first.
template <class Stored, class BitsOf, class WideOf = Stored>
struct PlainFormat {
  using Bits = BitsOf;
  using Wide = WideOf;

  static TUTTI_HOST_DEVICE Wide widen(Bits bits) {
    return static_cast<Wide>(bits_as<Stored>(bits));
  }
  static TUTTI_HOST_DEVICE Bits narrow(Wide value) {
    return bits_as<Bits>(static_cast<Stored>(value));
  }
  static TUTTI_HOST_DEVICE Wide divide(Wide value, std::uint32_t divisor) {
    const Wide wrapped = static_cast<Wide>(static_cast<Stored>(value));
    if constexpr (sizeof(Wide) == 8 && static_cast<Stored>(0.5) == 0) {
      // Devices divide 64 bits by calling a function: by the same one whatever the sign.
      const bool negative = std::is_signed_v<Wide> && static_cast<std::int64_t>(wrapped) < 0;
      const auto magnitude = static_cast<std::uint64_t>(wrapped);
      const std::uint64_t quotient = (negative ? 0 - magnitude : magnitude) / divisor;
      return static_cast<Wide>(negative ? 0 - quotient : quotient);
    } else {
      return wrapped / static_cast<Wide>(divisor);
    }
  }
};

template <class BitsOf, float (*kWiden)(BitsOf), BitsOf (*kNarrow)(float)>
struct SmallFloatFormat {
  using Bits = BitsOf;
  using Wide = float;

  static TUTTI_HOST_DEVICE Wide widen(Bits bits) { return kWiden(bits); }
  static TUTTI_HOST_DEVICE Bits narrow(Wide value) { return kNarrow(value); }
  static TUTTI_HOST_DEVICE Wide divide(Wide value, std::uint32_t divisor) {
    return value / static_cast<float>(divisor);
  }
};

TUTTI_HOST_DEVICE float widen_e5m2(std::uint8_t bits) {
  return widen_float16(static_cast<std::uint16_t>(bits << 8));
}
TUTTI_HOST_DEVICE std::uint8_t narrow_e4m3(float value) {
  return narrow_float8<3, 127 - 6, 0x43e00000U, 0x7fU>(value);
}
TUTTI_HOST_DEVICE std::uint8_t narrow_e5m2(float value) {
  return narrow_float8<2, 127 - 14, 0x47600000U, 0x7eU>(value);
}

template <DataType>
struct FormatOf;
// Numbers of 8 bits are wrapped only when they are stored.
template <>
struct FormatOf<DataType::int8> : PlainFormat<std::int8_t, std::uint8_t, std::int32_t> {};
template <>
struct FormatOf<DataType::uint8> : PlainFormat<std::uint8_t, std::uint8_t, std::uint32_t> {};
template <>
struct FormatOf<DataType::int32> : PlainFormat<std::int32_t, std::uint32_t> {};
template <>
struct FormatOf<DataType::uint32> : PlainFormat<std::uint32_t, std::uint32_t> {};
template <>
struct FormatOf<DataType::int64> : PlainFormat<std::int64_t, std::uint64_t> {};
template <>
struct FormatOf<DataType::uint64> : PlainFormat<std::uint64_t, std::uint64_t> {};
template <>
struct FormatOf<DataType::float32> : PlainFormat<float, std::uint32_t> {};
template <>
struct FormatOf<DataType::float64> : PlainFormat<double, std::uint64_t> {};
template <>
struct FormatOf<DataType::float16>
    : SmallFloatFormat<std::uint16_t, widen_float16, narrow_float16> {};
template <>
struct FormatOf<DataType::bfloat16>
    : SmallFloatFormat<std::uint16_t, widen_bfloat16, narrow_bfloat16> {};
template <>
struct FormatOf<DataType::float8_e4m3> : SmallFloatFormat<std::uint8_t, widen_e4m3, narrow_e4m3> {};
template <>
struct FormatOf<DataType::float8_e5m2> : SmallFloatFormat<std::uint8_t, widen_e5m2, narrow_e5m2> {};

// Of programs that only move bytes.
struct NoFormat {};

template <class Format>
inline constexpr bool kReduces = true;
template <>
inline constexpr bool kReduces<NoFormat> = false;

// ---- Operations ----

template <class T>
inline constexpr bool kIsFloat = false;
template <>
inline constexpr bool kIsFloat<float> = true;
template <>
inline constexpr bool kIsFloat<double> = true;

template <class T>
struct UnsignedOf;
template <>
struct UnsignedOf<float> {
  using Type = std::uint32_t;
};
template <>
struct UnsignedOf<double> {
  using Type = std::uint64_t;
};
template <>
struct UnsignedOf<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct UnsignedOf<std::uint32_t> {
  using Type = std::uint32_t;
};
template <>
struct UnsignedOf<std::int64_t> {
  using Type = std::uint64_t;
};
template <>
struct UnsignedOf<std::uint64_t> {
  using Type = std::uint64_t;
};

struct SumOp {
  static constexpr bool kDivides = false;
  template <class T>
  static TUTTI_HOST_DEVICE T apply(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return a + b;
    } else {
      using Unsigned = typename UnsignedOf<T>::Type;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    }
  }
};

// The sum of all, which is then divided.
struct AverageOp : SumOp {
  static constexpr bool kDivides = true;
};

struct ProdOp {
  static constexpr bool kDivides = false;
  template <class T>
  static TUTTI_HOST_DEVICE T apply(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return a * b;
    } else {
      using Unsigned = typename UnsignedOf<T>::Type;
      return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
    }
  }
};

// Neither less nor greater: equal, zeros of any sign, or a NaN among them. Then `or` keeps the NaN,
// and the sign of a -0.
struct MinOp {
  static constexpr bool kDivides = false;
  template <class T>
  static TUTTI_HOST_DEVICE T apply(T a, T b) {
    if constexpr (kIsFloat<T>) {
      using Unsigned = typename UnsignedOf<T>::Type;
      if (a < b) return a;
      if (b < a) return b;
      return bits_as<T>(static_cast<Unsigned>(bits_as<Unsigned>(a) | bits_as<Unsigned>(b)));
    } else {
      return a < b ? a : b;
    }
  }
};

struct MaxOp {
  static constexpr bool kDivides = false;
  template <class T>
  static TUTTI_HOST_DEVICE T apply(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return -MinOp::apply(-a, -b);
    } else {
      return a < b ? b : a;
    }
  }
};

}  // namespace tutti::runtime::gpu
