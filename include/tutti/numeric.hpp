// numeric.hpp: 16- and 8-bit floating-point element types, and the mapping from C++ types to
// DataType.
//
// They only carry bits and convert; arithmetic on them is done in float by the user, and by the
// library's kernels.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tutti/types.hpp"

#pragma GCC visibility push(default)
namespace tutti {

// IEEE-754 binary16 and bfloat16 as raw bits.
struct float16 {
  std::uint16_t bits = 0;
  friend bool operator==(float16, float16) = default;
};
struct bfloat16 {
  std::uint16_t bits = 0;
  friend bool operator==(bfloat16, bfloat16) = default;
};

// The 8-bit formats of the Open Compute Project as raw bits. float8_e4m3 (E4M3FN) has no infinity
// and one magnitude that is NaN, 0x7f; its largest number is 448, its smallest 2^-9. float8_e5m2 is
// the upper half of a float16; its largest finite number is 57344, its smallest 2^-16.
struct float8_e4m3 {
  std::uint8_t bits = 0;
  friend bool operator==(float8_e4m3, float8_e4m3) = default;
};
struct float8_e5m2 {
  std::uint8_t bits = 0;
  friend bool operator==(float8_e5m2, float8_e5m2) = default;
};

// Exact widening; narrowing rounds to nearest even and keeps NaN a (quiet) NaN. What is too large,
// infinity included, becomes infinity in 16 bits and the largest finite number in 8.
float to_float(float16 value);
float to_float(bfloat16 value);
float to_float(float8_e4m3 value);
float to_float(float8_e5m2 value);
float16 to_float16(float value);
bfloat16 to_bfloat16(float value);
float8_e4m3 to_float8_e4m3(float value);
float8_e5m2 to_float8_e5m2(float value);

// The DataType of a C++ element type.
template <typename T>
constexpr DataType data_type_of() {
  using Element = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Element, float>)
    return DataType::float32;
  else if constexpr (std::is_same_v<Element, double>)
    return DataType::float64;
  else if constexpr (std::is_same_v<Element, std::int8_t>)
    return DataType::int8;
  else if constexpr (std::is_same_v<Element, std::uint8_t>)
    return DataType::uint8;
  else if constexpr (std::is_same_v<Element, std::int32_t>)
    return DataType::int32;
  else if constexpr (std::is_same_v<Element, std::uint32_t>)
    return DataType::uint32;
  else if constexpr (std::is_same_v<Element, std::int64_t>)
    return DataType::int64;
  else if constexpr (std::is_same_v<Element, std::uint64_t>)
    return DataType::uint64;
  else if constexpr (std::is_same_v<Element, bfloat16>)
    return DataType::bfloat16;
  else if constexpr (std::is_same_v<Element, float16>)
    return DataType::float16;
  else if constexpr (std::is_same_v<Element, float8_e4m3>)
    return DataType::float8_e4m3;
  else if constexpr (std::is_same_v<Element, float8_e5m2>)
    return DataType::float8_e5m2;
  else
    static_assert(sizeof(T) == 0, "Tutti has no DataType for this element type");
}

}  // namespace tutti
#pragma GCC visibility pop
