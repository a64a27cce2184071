// element.hpp: arithmetic on elements of any floating type: everything is computed in float, or in
// double for doubles, and rounded once when it is stored.
//
// visit() turns a DataType that is known at run time into a C++ type, so that each operation is
// written once.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "training/tensor/check.hpp"
#include "tutti/numeric.hpp"
#include "tutti/types.hpp"

namespace tutti::training {

// What elements of type T are computed in.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The DataType of what `type` is computed, accumulated and kept as a gradient in.
constexpr DataType wide_type(DataType type) {
  return type == DataType::float64 ? DataType::float64 : DataType::float32;
}

inline float load(float value) { return value; }
inline double load(double value) { return value; }
inline float load(bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
inline float load(float16 value) { return to_float(value); }

// Rounds to nearest even.
template <typename T>
inline T store(Wide<T> value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)  // NaN stays a quiet NaN
      return bfloat16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
    return bfloat16{static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
  } else if constexpr (std::is_same_v<T, float16>) {
    return to_float16(value);
  } else {
    return value;
  }
}

// Calls `f` with a value of the C++ type of `type`: visit(t.type(), [&](auto zero) { using T =
// decltype(zero); ... }). Requires  float32, float64, bfloat16 or float16.
template <typename F>
decltype(auto) visit(DataType type, F&& f) {
  switch (type) {
    case DataType::float32:
      return f(float{});
    case DataType::float64:
      return f(double{});
    case DataType::bfloat16:
      return f(bfloat16{});
    case DataType::float16:
      return f(float16{});
    default:
      check_failed("a floating type", __FILE__, __LINE__, "tensors hold floating types");
  }
}

// visit() of a type that sums are of. Requires  type == wide_type(type).
template <typename F>
decltype(auto) visit_wide(DataType type, F&& f) {
  TRAINING_CHECK(type == wide_type(type), "sums are of a wide type");
  return type == DataType::float64 ? f(double{}) : f(float{});
}

}  // namespace tutti::training
