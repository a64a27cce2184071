// numeric.hpp: 16-bit floating-point element types, and the mapping from C++ types to DataType.
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

// Exact widening; narrowing rounds to nearest even, keeps NaN a (quiet) NaN, overflows to infinity.
float to_float(float16 value);
float to_float(bfloat16 value);
float16 to_float16(float value);
bfloat16 to_bfloat16(float value);

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
  else
    static_assert(sizeof(T) == 0, "Tutti has no DataType for this element type");
}

}  // namespace tutti
#pragma GCC visibility pop
