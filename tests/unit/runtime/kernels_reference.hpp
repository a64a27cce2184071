// kernels_reference.hpp: reductions told one element at a time, in arithmetic that one can check by
// eye, to hold the vector kernels against. Shares no code with them: the 16- and 8-bit formats are
// decoded and encoded from their definition (sign, exponent, fraction), not by moving bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "tutti/types.hpp"

namespace tutti::reference {

// A binary floating point format narrower than float.
struct Narrow {
  int fraction_bits;
  int bias;
  int sign;             // its bit
  bool saturates;       // narrowing gives the largest finite number, not infinity
  bool finite = false;  // there is no infinity: all ones are NaN and the rest are numbers
};
inline constexpr Narrow kHalf = {10, 15, 0x8000, false};
inline constexpr Narrow kBrain = {7, 127, 0x8000, false};
inline constexpr Narrow kE5M2 = {2, 15, 0x80, true};
inline constexpr Narrow kE4M3 = {3, 7, 0x80, true, true};

inline float decode(Narrow format, std::uint16_t bits) {
  const int scale = 1 << format.fraction_bits;
  const int fraction = bits % scale;
  const int exponent = (bits % format.sign) / scale;
  const float sign = bits >= format.sign ? -1.0f : 1.0f;
  if (format.finite) {
    if (bits % format.sign == format.sign - 1) return std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 2 * format.bias + 1) {
    if (fraction != 0) return std::numeric_limits<float>::quiet_NaN();
    return sign * std::numeric_limits<float>::infinity();
  }
  const int significand = exponent == 0 ? fraction : scale + fraction;
  const int power = std::max(exponent, 1) - format.bias - format.fraction_bits;
  return sign * static_cast<float>(std::ldexp(significand, power));
}

// The nearest value of the format, ties to even. One unit in the last place above the largest
// finite value carries into the exponent field and is infinity by itself, or saturates.
inline std::uint16_t encode(Narrow format, float value) {
  const int scale = 1 << format.fraction_bits;
  // The first code beyond the finite numbers, or the only NaN.
  const int infinity = format.finite ? format.sign - 1 : (2 * format.bias + 1) * scale;
  const int overflow = format.saturates ? infinity - 1 : infinity;
  const int sign = std::signbit(value) ? format.sign : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | (scale / 2));
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | overflow);
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  if (exponent > format.bias + 1) return static_cast<std::uint16_t>(sign | overflow);
  const double units = std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent));
  const int field = (exponent + format.bias) * scale + static_cast<int>(units) - scale;
  return static_cast<std::uint16_t>(sign | std::min(field, overflow));
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool nan = std::isnan(a) || std::isnan(b);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        return a + b;
      case ReduceOp::prod:
        return a * b;
      case ReduceOp::min:
        if (nan) return std::numeric_limits<T>::quiet_NaN();
        if (a == b) return std::signbit(a) ? a : b;
        return a < b ? a : b;
      case ReduceOp::max:
        if (nan) return std::numeric_limits<T>::quiet_NaN();
        if (a == b) return std::signbit(a) ? b : a;
        return a > b ? a : b;
    }
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    const Unsigned left = static_cast<Unsigned>(a);
    const Unsigned right = static_cast<Unsigned>(b);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        return static_cast<T>(static_cast<Unsigned>(left + right));
      case ReduceOp::prod:
        return static_cast<T>(static_cast<Unsigned>(left * right));
      case ReduceOp::min:
        return std::min(a, b);
      case ReduceOp::max:
        return std::max(a, b);
    }
  }
  return a;
}

// How an element of each type is kept and computed with.
template <DataType kType>
struct Element;

template <class T>
struct PlainElement {
  using Stored = T;
  static T load(T stored) { return stored; }
  static T save(T value) { return value; }
};
template <>
struct Element<DataType::float32> : PlainElement<float> {};
template <>
struct Element<DataType::float64> : PlainElement<double> {};
template <>
struct Element<DataType::int8> : PlainElement<std::int8_t> {};
template <>
struct Element<DataType::uint8> : PlainElement<std::uint8_t> {};
template <>
struct Element<DataType::uint32> : PlainElement<std::uint32_t> {};
template <>
struct Element<DataType::uint64> : PlainElement<std::uint64_t> {};
template <>
struct Element<DataType::int32> : PlainElement<std::int32_t> {};
template <>
struct Element<DataType::int64> : PlainElement<std::int64_t> {};
template <>
struct Element<DataType::bfloat16> {
  using Stored = std::uint16_t;
  static float load(Stored stored) { return decode(kBrain, stored); }
  static Stored save(float value) { return encode(kBrain, value); }
};
template <>
struct Element<DataType::float16> {
  using Stored = std::uint16_t;
  static float load(Stored stored) { return decode(kHalf, stored); }
  static Stored save(float value) { return encode(kHalf, value); }
};

template <>
struct Element<DataType::float8_e4m3> {
  using Stored = std::uint8_t;
  static float load(Stored stored) { return decode(kE4M3, stored); }
  static Stored save(float value) { return static_cast<Stored>(encode(kE4M3, value)); }
};
template <>
struct Element<DataType::float8_e5m2> {
  using Stored = std::uint8_t;
  static float load(Stored stored) { return decode(kE5M2, stored); }
  static Stored save(float value) { return static_cast<Stored>(encode(kE5M2, value)); }
};

template <DataType kType>
using Stored = typename Element<kType>::Stored;

// As a number that divides without being narrowed first: 1000 is no int8.
template <class T>
auto divisor_as(int divisor) {
  if constexpr (std::is_unsigned_v<T>)
    return static_cast<std::uint64_t>(divisor);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<std::int64_t>(divisor);
  else
    return static_cast<T>(divisor);
}

// Along the canonical tree: the left part is the largest power of two below the number of values.
template <class T>
T fold_tree(ReduceOp op, const T* values, std::size_t count) {
  if (count == 1) return values[0];
  std::size_t left = 1;
  while (2 * left < count) left *= 2;
  return combine(op, fold_tree(op, values, left), fold_tree(op, values + left, count - left));
}

enum class Order { chain, tree };

// The fold of the first `sources` columns, element by element.
template <DataType kType>
std::vector<Stored<kType>> reduce(ReduceOp op,
                                  const std::vector<std::vector<Stored<kType>>>& columns,
                                  std::size_t sources, int divisor, Order order = Order::chain) {
  using E = Element<kType>;
  std::vector<Stored<kType>> result(columns[0].size());
  std::vector<decltype(E::load(columns[0][0]))> row(sources);
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t s = 0; s < sources; ++s) row[s] = E::load(columns[s][i]);
    auto value = row[0];
    for (std::size_t s = 1; s < sources; ++s) value = combine(op, value, row[s]);
    if (order == Order::tree) value = fold_tree(op, row.data(), sources);
    if (divisor > 1)
      value = static_cast<decltype(value)>(value / divisor_as<decltype(value)>(divisor));
    result[i] = E::save(value);
  }
  return result;
}

// The same bits, or a NaN both.
template <DataType kType>
bool same(Stored<kType> a, Stored<kType> b) {
  if constexpr (std::is_floating_point_v<decltype(Element<kType>::load(a))>) {
    if (std::isnan(Element<kType>::load(a)) && std::isnan(Element<kType>::load(b))) return true;
  }
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Values where arithmetic goes wrong first: zeros, subnormals, ties of rounding, limits, NaN.
template <DataType kType>
std::vector<Stored<kType>> special_values() {
  using T = Stored<kType>;
  if constexpr (kType == DataType::bfloat16) {
    return {0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x3F81, 0x3C00, 0x3B80,
            0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF, 0x4300, 0x4380, 0x2F80};
  } else if constexpr (kType == DataType::float16) {
    return {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x83FF, 0x3C00, 0xBC00, 0x3C01, 0x6800,
            0x7BFF, 0xFBFF, 0x4C00, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF, 0x1000, 0x0C00};
  } else if constexpr (kType == DataType::float8_e4m3) {
    return {0x00, 0x80, 0x01, 0x81, 0x07, 0x08, 0x87, 0x38, 0xB8,
            0x39, 0x10, 0x20, 0x58, 0x59, 0x7E, 0xFE, 0x7F, 0xFF};
  } else if constexpr (kType == DataType::float8_e5m2) {
    return {0x00, 0x80, 0x01, 0x81, 0x03, 0x04, 0x83, 0x3C, 0xBC, 0x3D, 0x28,
            0x48, 0x49, 0x68, 0x7B, 0xFB, 0x7C, 0xFC, 0x7D, 0x7E, 0xFF};
  } else if constexpr (std::is_floating_point_v<T>) {
    using L = std::numeric_limits<T>;
    return {T(0),           -T(0),           T(1),           -T(1),
            T(3),           L::denorm_min(), L::min(),       -L::min(),
            L::min() / 2,   L::max(),        L::lowest(),    L::infinity(),
            L::epsilon(),   -L::infinity(),  L::quiet_NaN(), L::signaling_NaN(),
            -L::quiet_NaN()};
  } else {
    using L = std::numeric_limits<T>;
    const auto minus = [](int value) { return static_cast<T>(-value); };
    return {T(0),     T(1),     minus(1),        T(2),           minus(2), T(7), minus(7),
            L::max(), L::min(), T(L::max() - 1), T(L::min() + 1)};
  }
}

// A third specials, a third any bits, a third ordinary numbers between -8 and 8.
template <DataType kType>
std::vector<Stored<kType>> random_values(std::size_t count, std::uint64_t seed) {
  using E = Element<kType>;
  using T = Stored<kType>;
  const std::vector<T> specials = special_values<kType>();
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    const std::uint64_t bits = random();
    const std::uint64_t kind = random() % 3;
    if (kind == 0) value = specials[bits % specials.size()];
    if (kind == 1) std::memcpy(&value, &bits, sizeof(value));
    if (kind == 2) {
      const double number = (static_cast<double>(bits % 1000003) / 500001.5 - 1) * 8;
      using Value = decltype(E::load(value));
      if constexpr (std::is_unsigned_v<Value>)
        value = E::save(static_cast<Value>(static_cast<int>(number)));
      else
        value = E::save(static_cast<Value>(number));
    }
  }
  return values;
}

}  // namespace tutti::reference
