// The construction.
//
// Let an element have n contributions. Each rank has a *place* 0 .. n-1 in it: the ranks in turn,
// begun at a rank that a hash of the index picks. What a rank contributes depends on its place.
//
//   sum, avg  ±u·s(place)·2^e. The shares s are positive whole numbers, all different where that is
//             possible, with total S; u is a random whole number with u·S < 2^p, where p is the
//             number of significant bits of the type (3 for f8e5m2, 4 for f8e4m3, 8 for bfloat16,
//             11 for half). The sum of any subset of contributions is then a whole number of at
//             most p bits times 2^e, which the type holds exactly: no order or grouping can round.
//             Nothing is 0 while n < 2^p (256 ranks in bfloat16), so that a contribution that is
//             lost or counted twice always shows; above, each element has 2^p - 1 contributors,
//             and all ranks have their turn. An average is its exact sum, divided in float (in
//             double for double) and rounded once to the type.
//             Integers have p = 6, 30 or 62 and no e, so that nothing overflows; unsigned ones have
//             no sign either.
//   mulsum    As sum, with S of the shares times the ranks' factors, which are 1 and 2. It depends
//             on which places the factors meet.
//   prod      Place 0 holds a number with a random odd mantissa, the other places powers of two
//             whose exponents are shares of 12 (of 6 for f8e4m3, of 3 for bytes), or -1 for those
//             who get none. Nothing is 1, so every loss or doubling shows; every partial product
//             has one mantissa and a small exponent.
//   min, max  Values are told by their ordinal among the type's finite values. Place 0 holds the
//             extreme, all others something random beyond it, so that each rank decides 1/n of the
//             elements. No NaN and no -0, about which implementations may differ.
//   moved     Hashed bits, NaN patterns included: whoever only moves must not touch them.
#include "perf/common/data.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tutti/numeric.hpp"

namespace tutti::perf {
namespace {

// Keeps a product of any ranks within the type's range.
constexpr std::uint64_t product_budget(DataType type) {
  if (type == DataType::int8 || type == DataType::uint8) return 3;
  return type == DataType::float8_e4m3 ? 6 : 12;  // the latter for half
}

// A bijection on 64 bits in which every input bit moves about half of the output bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 32)) * 0x9fb21c651e98df25u;
  x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

// The random word of an element, for a seed that is itself mixed; two multiplications, because
// checking costs little more than this.
std::uint64_t hash_of(std::uint64_t mixed_seed, std::size_t index) {
  return mix(mixed_seed + index * 0x632be59bd9b4e019u);
}

// A second word from the first: good enough next to it, and cheaper than another hash.
std::uint64_t more(std::uint64_t hash) {
  hash *= 0xa0761d6478bd642fu;
  return hash ^ (hash >> 32);
}

// 1 or -1 by the lowest bit, without a branch that nobody can predict.
int sign_of(std::uint64_t hash) { return 1 - 2 * static_cast<int>(hash & 1); }

// What the construction must know of a type: bits of exact whole numbers, the scales 2^e that leave
// room for them, bits of a random mantissa, and the ordinal of the largest finite value.
template <typename T>
struct Format;
template <>
struct Format<float> {
  static constexpr int whole_bits = 24, scales = 64, lowest_scale = -32, mantissa_bits = 23;
  static constexpr std::int64_t largest = 0x7f7fffff;
};
template <>
struct Format<double> {
  static constexpr int whole_bits = 53, scales = 64, lowest_scale = -32, mantissa_bits = 52;
  static constexpr std::int64_t largest = 0x7fefffffffffffff;
};
template <>
struct Format<bfloat16> {
  static constexpr int whole_bits = 8, scales = 64, lowest_scale = -32, mantissa_bits = 7;
  static constexpr std::int64_t largest = 0x7f7f;
};
template <>
struct Format<float16> {
  static constexpr int whole_bits = 11, scales = 16, lowest_scale = -11, mantissa_bits = 10;
  static constexpr std::int64_t largest = 0x7bff;
};
template <>
struct Format<float8_e4m3> {
  static constexpr int whole_bits = 4, scales = 8, lowest_scale = -4, mantissa_bits = 3, bias = 7;
  static constexpr std::int64_t largest = 0x7e;
};
template <>
struct Format<float8_e5m2> {
  static constexpr int whole_bits = 3, scales = 16, lowest_scale = -8, mantissa_bits = 2, bias = 15;
  static constexpr std::int64_t largest = 0x7b;
};
// Unsigned ordinals are counted from the middle of the range, see from_ordinal.
template <>
struct Format<std::int8_t> {
  static constexpr int whole_bits = 6, mantissa_bits = 3;
  static constexpr std::int64_t largest = 0x7f;
};
template <>
struct Format<std::uint8_t> : Format<std::int8_t> {};
template <>
struct Format<std::int32_t> {
  static constexpr int whole_bits = 30, mantissa_bits = 15;
  static constexpr std::int64_t largest = 0x7fffffff;
};
template <>
struct Format<std::int64_t> {
  static constexpr int whole_bits = 62, mantissa_bits = 47;
  static constexpr std::int64_t largest = 0x7fffffffffffffff;
};
template <>
struct Format<std::uint32_t> : Format<std::int32_t> {};
template <>
struct Format<std::uint64_t> : Format<std::int64_t> {};

// The unsigned number as wide as an element.
template <std::size_t bytes>
using BitsOf = std::conditional_t<
    bytes == 1, std::uint8_t,
    std::conditional_t<bytes == 2, std::uint16_t,
                       std::conditional_t<bytes == 4, std::uint32_t, std::uint64_t>>>;

// 2^exponent for normal doubles.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

// Calls f with a value of the element type that `type` names.
template <typename F>
auto with_type(DataType type, F f) {
  switch (type) {
    case DataType::float32:
      return f(float{});
    case DataType::float64:
      return f(double{});
    case DataType::int8:
      return f(std::int8_t{});
    case DataType::uint8:
      return f(std::uint8_t{});
    case DataType::int32:
      return f(std::int32_t{});
    case DataType::uint32:
      return f(std::uint32_t{});
    case DataType::int64:
      return f(std::int64_t{});
    case DataType::uint64:
      return f(std::uint64_t{});
    case DataType::bfloat16:
      return f(bfloat16{});
    case DataType::float8_e4m3:
      return f(float8_e4m3{});
    case DataType::float8_e5m2:
      return f(float8_e5m2{});
    case DataType::float16:
      break;
  }
  return f(float16{});
}

// The upper bits of a float from `dropped` on, rounded to nearest even.
std::uint32_t rounded(float value, int dropped) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t odd = bits >> dropped & 1;
  return (bits + (std::uint32_t{1} << (dropped - 1)) - 1 + odd) >> dropped;
}

// The code of an 8-bit float that holds `value`, which is below the largest or equal to it: in
// units of the last place, counted from the binade's first code.
template <typename T>
T float8_of(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(std::fabs(value));
  const int exponent = std::max(static_cast<int>(bits >> 52) - 1023, 1 - Format<T>::bias);
  const double units =
      std::nearbyint(std::fabs(value) * power_of_two(Format<T>::mantissa_bits - exponent));
  const int binade = (exponent + Format<T>::bias - 1) << Format<T>::mantissa_bits;
  const int sign = std::signbit(value) ? 0x80 : 0;
  return {static_cast<std::uint8_t>(sign | (binade + static_cast<int>(units)))};
}

// Narrows by code of its own, so that a conversion that is wrong in the library shows. The values
// of the construction are zero or, unless they are 8-bit floats, in the normal range of T.
template <typename T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return {static_cast<std::uint16_t>(rounded(static_cast<float>(value), 16))};
  } else if constexpr (std::is_same_v<T, float16>) {
    if (value == 0) return {};
    constexpr std::uint32_t rebias = (127 - 15) << 10;  // to half's exponent bias
    const std::uint32_t magnitude = rounded(std::fabs(static_cast<float>(value)), 13) - rebias;
    return {static_cast<std::uint16_t>(magnitude | (std::signbit(value) ? 0x8000u : 0u))};
  } else if constexpr (sizeof(T) == 1 && !std::is_integral_v<T>) {
    return float8_of<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// The finite values of a floating type in their order: ..., -1: the largest negative, 0: zero, ...
// Of an unsigned one: 0 is the middle.
template <typename T>
T from_ordinal(std::int64_t ordinal) {
  if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(ordinal) +
                          static_cast<std::uint64_t>(Format<T>::largest));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(ordinal);
  } else {
    using Bits = BitsOf<sizeof(T)>;
    const auto magnitude = static_cast<Bits>(ordinal < 0 ? -ordinal : ordinal);
    const auto sign = static_cast<Bits>(static_cast<Bits>(ordinal < 0) << (8 * sizeof(T) - 1));
    return std::bit_cast<T>(static_cast<Bits>(magnitude | sign));
  }
}

template <typename Bits>
void compare_bits(const std::byte* got, const std::byte* expected, std::size_t count,
                  std::uint64_t tolerance, std::size_t offset, Mismatch& mismatch) {
  for (std::size_t i = 0; i < count; ++i) {
    Bits a, b;
    std::memcpy(&a, got + i * sizeof(Bits), sizeof(Bits));
    std::memcpy(&b, expected + i * sizeof(Bits), sizeof(Bits));
    if ((a > b ? a - b : b - a) <= static_cast<Bits>(tolerance)) continue;
    if (mismatch.count++ == 0) mismatch.first = offset + i;
  }
}

}  // namespace

Shares make_shares(int n, std::uint64_t budget) {
  const auto size = static_cast<std::uint64_t>(n);
  const auto total_with = [size](std::uint64_t distinct) {  // 1 .. distinct, repeated
    const std::uint64_t rest = size % distinct;
    return size / distinct * (distinct * (distinct + 1) / 2) + rest * (rest + 1) / 2;
  };
  std::uint64_t distinct = size;
  while (distinct > 1 && total_with(distinct) > budget) --distinct;
  Shares shares;
  for (std::uint64_t i = 0; i < size; ++i) {
    const std::uint64_t share = size > budget ? (i < budget ? 1 : 0) : 1 + i % distinct;
    shares.of.push_back(share);
    shares.total += share;
  }
  return shares;
}

namespace {

// Of the ranks' factors times their shares, for each turn of the places.
std::vector<std::uint64_t> scaled_totals(const std::vector<std::uint64_t>& shares) {
  std::vector<std::uint64_t> totals;
  for (std::size_t turn = 0; turn < shares.size(); ++turn) {
    std::uint64_t total = 0;
    for (std::size_t rank = 0; rank < shares.size(); ++rank)
      total += factor_of(static_cast<Rank>(rank)) * shares[(rank + turn) % shares.size()];
    totals.push_back(total);
  }
  return totals;
}

}  // namespace

Reduction reduction(const Operation& operation, DataType type, Rank rank) {
  if (!operation.scaled) return operation.op;
  return with_type(type, [rank](auto example) {
    return Reduction::premul_sum(
        from_double<decltype(example)>(static_cast<double>(factor_of(rank))));
  });
}

Pattern Pattern::moved(DataType type, std::uint64_t seed) { return Pattern(type, mix(seed)); }

Pattern Pattern::reduced(DataType type, const Operation& operation, int ranks, std::uint64_t seed) {
  const ReduceOp op = operation.op;
  Pattern pattern(type, mix(seed));
  pattern.op_ = op;
  pattern.ranks_ = ranks;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: {
      const auto budget = with_type(type, [](auto example) {
        return (std::uint64_t{1} << Format<decltype(example)>::whole_bits) - 1;
      });
      const std::uint64_t largest_factor = operation.scaled ? 2 : 1;
      pattern.kind_ = Kind::sum;
      pattern.shares_ = make_shares(ranks, budget / largest_factor);
      pattern.unit_mask_ = std::bit_floor(budget / largest_factor / pattern.shares_.total) - 1;
      if (operation.scaled) pattern.scaled_totals_ = scaled_totals(pattern.shares_.of);
      // Two patterns are nothing in a wide type, and a fifth of the value in 8 bits.
      pattern.tolerance_ = op == ReduceOp::avg && is_floating(type) && size_of(type) > 1 ? 2 : 0;
      break;
    }
    case ReduceOp::prod:
      pattern.kind_ = Kind::prod;
      pattern.shares_ = make_shares(ranks - 1, product_budget(type));
      pattern.minus_ones_ =
          static_cast<int>(std::count(pattern.shares_.of.begin(), pattern.shares_.of.end(), 0u));
      break;
    case ReduceOp::min:
    case ReduceOp::max:
      pattern.kind_ = Kind::extreme;
      break;
  }
  return pattern;
}

std::uint64_t Pattern::turn(std::uint64_t hash) const {
  return (hash >> 32) * static_cast<std::uint64_t>(ranks_) >> 32;
}

std::size_t Pattern::place(std::uint64_t hash, Rank rank) const {
  const auto ranks = static_cast<std::uint64_t>(ranks_);
  const std::uint64_t turned = static_cast<std::uint64_t>(rank) + turn(hash);
  return turned < ranks ? turned : turned - ranks;
}

template <typename T>
T Pattern::sum_element(std::uint64_t hash, Rank source) const {
  const std::uint64_t unit = 1 + (more(hash) & unit_mask_);
  const std::uint64_t total = scaled_totals_.empty() ? shares_.total : scaled_totals_[turn(hash)];
  const std::uint64_t share = source == kReduced ? total : shares_.of[place(hash, source)];
  const int sign = std::is_unsigned_v<T> ? 1 : sign_of(hash);
  const std::int64_t whole = sign * static_cast<std::int64_t>(unit * share);
  const bool divide = source == kReduced && op_ == ReduceOp::avg;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(divide ? whole / ranks_ : whole);
  } else {
    const int scale = Format<T>::lowest_scale + static_cast<int>((hash >> 1) % Format<T>::scales);
    const double value = static_cast<double>(whole) * power_of_two(scale);
    return from_double<T>(divide ? value / ranks_ : value);
  }
}

template <typename T>
T Pattern::prod_element(std::uint64_t hash, Rank source) const {
  constexpr std::uint64_t mantissa_mask = (std::uint64_t{1} << (Format<T>::mantissa_bits - 1)) - 1;
  const std::size_t at = source == kReduced ? 0 : place(hash, source);
  std::uint64_t share = 0;
  bool negative = false;  // by factors of -1
  if (source == kReduced) {
    share = shares_.total;
    negative = minus_ones_ % 2 != 0;
  } else if (at != 0) {
    share = shares_.of[at - 1];
    negative = share == 0;
  }
  const std::uint64_t odd = 2 * (more(hash) & mantissa_mask) + 1;
  if constexpr (std::is_integral_v<T>) {
    const std::int64_t random = at == 0 ? sign_of(hash) * static_cast<std::int64_t>(odd + 2) : 1;
    return static_cast<T>((negative ? -random : random) * (std::int64_t{1} << share));
  } else {
    const double mantissa = 1 + static_cast<double>(odd) * power_of_two(-Format<T>::mantissa_bits);
    const double random = at == 0 ? sign_of(hash) * mantissa : 1;
    const int exponent = sign_of(hash >> 1) * static_cast<int>(share);
    return from_double<T>((negative ? -random : random) * power_of_two(exponent));
  }
}

template <typename T>
T Pattern::extreme_element(std::uint64_t hash, Rank source) const {
  constexpr auto half = static_cast<std::uint64_t>(Format<T>::largest / 2);
  std::int64_t ordinal =
      static_cast<std::int64_t>(more(hash) % (2 * half)) - static_cast<std::int64_t>(half);
  if (source != kReduced && place(hash, source) != 0) {
    const auto rank = static_cast<std::uint64_t>(source);
    const auto beyond = static_cast<std::int64_t>(1 + mix(hash + rank) % half);
    ordinal += op_ == ReduceOp::min ? beyond : -beyond;
  }
  return from_ordinal<T>(ordinal);
}

template <typename T>
void Pattern::generate(void* out, Rank source, std::size_t first, std::size_t count) const {
  T* const elements = static_cast<T*>(out);
  const std::uint64_t source_seed = mix(seed_ + static_cast<std::uint64_t>(source));
  const auto each = [&](std::uint64_t seed, auto element) {
    for (std::size_t i = 0; i < count; ++i) elements[i] = element(hash_of(seed, first + i));
  };
  using Bits = BitsOf<sizeof(T)>;
  switch (kind_) {
    case Kind::moved:
      return each(source_seed,
                  [](std::uint64_t hash) { return std::bit_cast<T>(static_cast<Bits>(hash)); });
    case Kind::sum:
      return each(seed_, [&](std::uint64_t hash) { return sum_element<T>(hash, source); });
    case Kind::prod:
      return each(seed_, [&](std::uint64_t hash) { return prod_element<T>(hash, source); });
    case Kind::extreme:
      return each(seed_, [&](std::uint64_t hash) { return extreme_element<T>(hash, source); });
  }
}

void Pattern::fill(void* out, Rank source, std::size_t first, std::size_t count) const {
  with_type(type_, [&](auto example) { generate<decltype(example)>(out, source, first, count); });
}

Mismatch Pattern::compare(const void* got, Rank source, std::size_t first,
                          std::size_t count) const {
  constexpr std::size_t block = 1024;
  alignas(64) std::byte expected[block * sizeof(double)];
  const std::size_t element_bytes = size_of(type_);
  Mismatch mismatch;
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t length = std::min(block, count - at);
    const std::byte* const here = static_cast<const std::byte*>(got) + at * element_bytes;
    fill(expected, source, first + at, length);
    if (std::memcmp(here, expected, length * element_bytes) == 0) continue;
    if (element_bytes == 1) {
      compare_bits<BitsOf<1>>(here, expected, length, tolerance_, at, mismatch);
    } else if (element_bytes == 2) {
      compare_bits<BitsOf<2>>(here, expected, length, tolerance_, at, mismatch);
    } else if (element_bytes == 4) {
      compare_bits<BitsOf<4>>(here, expected, length, tolerance_, at, mismatch);
    } else {
      compare_bits<BitsOf<8>>(here, expected, length, tolerance_, at, mismatch);
    }
  }
  return mismatch;
}

}  // namespace tutti::perf
