// formats_inl.hpp: how each element type gets from memory into vectors that one can compute with,
// and back, and what each reduction does to two such vectors.
//
// Compiled once per instruction set (hence no `#pragma once` but Highway's toggle). Knows nothing
// of buffers and loops. A vector in memory is always one of bytes, as a rule a full one, so that no
// pointer needs alignment and a partial vector may end anywhere.
#if defined(TUTTI_KERNELS_FORMATS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_FORMATS_INL_HPP
#undef TUTTI_KERNELS_FORMATS_INL_HPP
#else
#define TUTTI_KERNELS_FORMATS_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "runtime/kernels/memory_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::runtime::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Instruction sets that convert float16 by themselves, with NaN, subnormals and ties right.
// Highway's own emulation elsewhere rounds otherwise, so that it is told again below.
inline constexpr bool kNativeFloat16 =
    HWY_TARGET != HWY_SSE4 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;

// Elements that are computed with as they are stored. Integers add and multiply as unsigned ones.
template <class T>
struct PlainFormat {
  using Memory = Bytes;
  using Tag = hn::ScalableTag<T>;
  using Wide = hn::Vec<Tag>;

  static HWY_INLINE Wide widen(ByteVector raw) { return hn::BitCast(Tag(), raw); }
  static HWY_INLINE ByteVector narrow(Wide value) { return hn::BitCast(Bytes(), value); }

  template <class Op>
  static HWY_INLINE Wide combine(Wide a, Wide b) {
    return Op::apply(Tag(), a, b);
  }

  static HWY_INLINE Wide divide(Wide value, int divisor) {
    if constexpr (hwy::IsFloat<T>()) {
      return hn::Div(value, hn::Set(Tag(), static_cast<T>(divisor)));
    } else {
      return divide_lanes(value, divisor);
    }
  }

 private:
  // No instruction set divides integers. Those of up to 32 bits go through a floating type that
  // holds them exactly; its quotient, rounded or not, has the right whole part: the next whole
  // number is at least 1/divisor away, which is more than half a unit in the quotient's last place.
  // Compilers make vectors of the loop. A communicator may have more ranks than a byte can count.
  static HWY_INLINE Wide divide_lanes(Wide value, int divisor) {
    HWY_ALIGN T lanes[hn::MaxLanes(Tag())];
    hn::Store(value, Tag(), lanes);
    if constexpr (sizeof(T) < 8) {
      using Real = std::conditional_t<sizeof(T) == 1, float, double>;
      for (T& lane : lanes)
        lane = static_cast<T>(static_cast<Real>(lane) / static_cast<Real>(divisor));
    } else {
      for (T& lane : lanes) lane /= static_cast<T>(divisor);
    }
    return hn::Load(Tag(), lanes);
  }
};

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::ScalableTag<std::uint32_t>;
using Words = hn::Vec<WordTag>;

// Two float32 vectors: what one memory vector of 16-bit elements becomes. Which element went into
// which half is the business of the format; arithmetic does not care.
struct FloatPair {
  hn::Vec<FloatTag> low;
  hn::Vec<FloatTag> high;
};

// The arithmetic of both 16-bit formats; `Codec` widens and narrows.
template <class Codec>
struct HalfFormat {
  using Memory = Bytes;
  using Wide = FloatPair;

  static HWY_INLINE Wide widen(ByteVector raw) { return Codec::widen(raw); }
  static HWY_INLINE ByteVector narrow(Wide value) { return Codec::narrow(value); }

  template <class Op>
  static HWY_INLINE Wide combine(Wide a, Wide b) {
    return {Op::apply(FloatTag(), a.low, b.low), Op::apply(FloatTag(), a.high, b.high)};
  }

  static HWY_INLINE Wide divide(Wide value, int divisor) {
    const auto by = hn::Set(FloatTag(), static_cast<float>(divisor));
    return {hn::Div(value.low, by), hn::Div(value.high, by)};
  }
};

// bfloat16 is the upper half of a float32. Seen as 32-bit words, a memory vector holds elements of
// even number in the lower halves and of odd number in the upper ones, so that neither direction
// has to move anything across lanes.
struct BFloat16Codec {
  static HWY_INLINE FloatPair widen(ByteVector raw) {
    const Words words = hn::BitCast(WordTag(), raw);
    return {hn::BitCast(FloatTag(), hn::ShiftLeft<16>(words)),
            hn::BitCast(FloatTag(), hn::And(words, hn::Set(WordTag(), 0xFFFF0000u)))};
  }

  static HWY_INLINE ByteVector narrow(FloatPair value) {
    const Words low = hn::ShiftRight<16>(rounded(value.low));
    const Words high = hn::And(rounded(value.high), hn::Set(WordTag(), 0xFFFF0000u));
    return hn::BitCast(Bytes(), hn::Or(low, high));
  }

 private:
  // The upper half becomes the nearest bfloat16 (ties to even); the lower half is left as dirt.
  // Rounding carries only out of a lower half that is not zero. That of a NaN is: no operation
  // makes a NaN whose payload has bits that neither its operands nor the default NaN have.
  static HWY_INLINE Words rounded(hn::Vec<FloatTag> value) {
    const Words bits = hn::BitCast(WordTag(), value);
    const Words up = hn::Add(bits, hn::Set(WordTag(), 0x7FFFu));
    if constexpr (HWY_TARGET == HWY_AVX3) {  // which tests bits by one instruction
      const auto odd = hn::TestBit(bits, hn::Set(WordTag(), 0x10000u));
      return hn::IfThenElse(odd, hn::Add(up, hn::Set(WordTag(), 1u)), up);
    } else {
      const Words odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(WordTag(), 1u));
      return hn::Add(up, odd);
    }
  }
};

// float16 where the processor converts it: halves of the memory vector, lower and upper. `pack`
// puts 16-bit numbers, told as words, where `widen` would find them.
struct NativeFloat16Codec {
  using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
  using HalfBits = hn::Rebind<std::uint16_t, FloatTag>;
  using Halves = hn::Repartition<std::uint16_t, Bytes>;

  static HWY_INLINE FloatPair widen(ByteVector raw) {
    const auto halves = hn::BitCast(Halves(), raw);
    const auto low = hn::BitCast(HalfTag(), hn::LowerHalf(HalfBits(), halves));
    const auto high = hn::BitCast(HalfTag(), hn::UpperHalf(HalfBits(), halves));
    return {hn::PromoteTo(FloatTag(), low), hn::PromoteTo(FloatTag(), high)};
  }

  static HWY_INLINE ByteVector narrow(FloatPair value) {
    const auto low = hn::BitCast(HalfBits(), hn::DemoteTo(HalfTag(), value.low));
    const auto high = hn::BitCast(HalfBits(), hn::DemoteTo(HalfTag(), value.high));
    return hn::BitCast(Bytes(), hn::Combine(Halves(), high, low));
  }

  static HWY_INLINE ByteVector pack(Words low, Words high) {
    return hn::BitCast(Bytes(), hn::Combine(Halves(), hn::TruncateTo(HalfBits(), high),
                                            hn::TruncateTo(HalfBits(), low)));
  }
};

// float16 by integer arithmetic on 32-bit words, elements of even and odd number apart. Its two
// conversions are real functions, to keep compile time in hand on processors long out of fashion.
struct EmulatedFloat16Codec {
  static HWY_INLINE FloatPair widen(ByteVector raw) {
    const Words words = hn::BitCast(WordTag(), raw);
    return {widen_word(hn::And(words, word(0xFFFFu))), widen_word(hn::ShiftRight<16>(words))};
  }

  static HWY_INLINE ByteVector narrow(FloatPair value) {
    const Words low = narrow_word(value.low);
    return pack(low, narrow_word(value.high));
  }

  static HWY_INLINE ByteVector pack(Words low, Words high) {
    return hn::BitCast(Bytes(), hn::Or(low, hn::ShiftLeft<16>(high)));
  }

 private:
  static HWY_INLINE Words word(std::uint32_t bits) { return hn::Set(WordTag(), bits); }

  static HWY_INLINE Words where(hn::Mask<WordTag> mask, Words yes, Words no) {
    return hn::IfThenElse(mask, yes, no);
  }

  static HWY_NOINLINE hn::Vec<FloatTag> widen_word(Words half) {
    const Words sign = hn::ShiftLeft<16>(hn::And(half, word(0x8000u)));
    const Words magnitude = hn::And(half, word(0x7FFFu));
    const Words shifted = hn::ShiftLeft<13>(magnitude);
    const Words normal = hn::Add(shifted, word(112u << 23));    // 112: exponent bias 127 - 15
    const Words infinite = hn::Add(shifted, word(224u << 23));  // exponent 31 becomes 255
    // 2^-14 * (1 + m/1024) - 2^-14 is exactly the subnormal m.
    const auto smallest = hn::BitCast(FloatTag(), word(113u << 23));
    const auto with_one = hn::BitCast(FloatTag(), hn::Add(shifted, word(113u << 23)));
    const Words subnormal = hn::BitCast(WordTag(), hn::Sub(with_one, smallest));
    const Words finite = where(hn::Lt(magnitude, word(0x0400u)), subnormal, normal);
    const Words value = where(hn::Lt(magnitude, word(0x7C00u)), finite, infinite);
    return hn::BitCast(FloatTag(), hn::Or(value, sign));
  }

  static HWY_NOINLINE Words narrow_word(hn::Vec<FloatTag> value) {
    const Words bits = hn::BitCast(WordTag(), value);
    const Words sign = hn::And(hn::ShiftRight<16>(bits), word(0x8000u));
    const Words magnitude = hn::And(bits, word(0x7FFFFFFFu));
    const Words odd = hn::And(hn::ShiftRight<13>(magnitude), word(1u));
    const Words rebiased = hn::Sub(magnitude, word(112u << 23));
    const Words normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebiased, word(0x0FFFu)), odd));
    // Next to 0.5 the last place of a float32 is 2^-24, that of a float16 subnormal: the adder
    // rounds for us.
    const auto half_one = hn::Set(FloatTag(), 0.5f);
    const auto added = hn::Add(hn::BitCast(FloatTag(), magnitude), half_one);
    const Words subnormal = hn::Sub(hn::BitCast(WordTag(), added), word(126u << 23));
    const Words finite = where(hn::Lt(magnitude, word(113u << 23)), subnormal, normal);
    const Words nan_or_infinity =
        where(hn::Gt(magnitude, word(0x7F800000u)), word(0x7E00u), word(0x7C00u));
    const Words result = where(hn::Lt(magnitude, word(143u << 23)), finite, nan_or_infinity);
    return hn::Or(result, sign);
  }
};

using Float16Codec = std::conditional_t<kNativeFloat16, NativeFloat16Codec, EmulatedFloat16Codec>;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// float16 where one instruction converts from memory, and one to memory, as many as fill a register
// as float32: a vector in memory has half as many bytes. Of a whole one within a register, each
// half would have to be moved across lanes first, which takes longer than to convert it. A sum of
// two of 32 KiB: 0.66 us with halves, 1.1 with quarters (Zen 5, AVX-512; on another EPYC 2.7 and
// 2.4 ns for 64 bytes, and with whole vectors 3.9).
struct Float16Format {
  using Tag = FloatTag;
  using HalfTag = hn::Rebind<hwy::float16_t, Tag>;
  using Memory = hn::Repartition<std::uint8_t, HalfTag>;
  using Wide = hn::Vec<Tag>;

  static HWY_INLINE Wide widen(hn::Vec<Memory> raw) {
    return hn::PromoteTo(Tag(), hn::BitCast(HalfTag(), raw));
  }
  static HWY_INLINE hn::Vec<Memory> narrow(Wide value) {
    return hn::BitCast(Memory(), hn::DemoteTo(HalfTag(), value));
  }

  template <class Op>
  static HWY_INLINE Wide combine(Wide a, Wide b) {
    return Op::apply(Tag(), a, b);
  }

  static HWY_INLINE Wide divide(Wide value, int divisor) {
    return hn::Div(value, hn::Set(Tag(), static_cast<float>(divisor)));
  }
};
#else
using Float16Format = HalfFormat<Float16Codec>;
#endif

// Both 8-bit formats go up by way of float16, which holds all of their values, and come down
// directly, because two roundings are not one. Seen as 16-bit numbers, a memory vector holds
// elements of even number in the lower bytes and of odd number in the upper ones. `Small` tells
// the format: how a byte becomes a float16, and the constants of narrowing.
template <class Small>
struct Float8Format {
  using Memory = Bytes;
  using Halves = hn::Repartition<std::uint16_t, Bytes>;
  using HalfVector = hn::Vec<Halves>;
  struct Wide {
    FloatPair even;
    FloatPair odd;
  };

  static HWY_INLINE Wide widen(ByteVector raw) {
    const HalfVector halves = hn::BitCast(Halves(), raw);
    return {widen_upper(hn::ShiftLeft<8>(halves)),
            widen_upper(hn::And(halves, hn::Set(Halves(), std::uint16_t{0xFF00})))};
  }

  static HWY_INLINE ByteVector narrow(Wide value) {
    return Float16Codec::pack(narrow_two(value.even.low, value.odd.low),
                              narrow_two(value.even.high, value.odd.high));
  }

  template <class Op>
  static HWY_INLINE Wide combine(Wide a, Wide b) {
    return {Half::template combine<Op>(a.even, b.even), Half::template combine<Op>(a.odd, b.odd)};
  }

  static HWY_INLINE Wide divide(Wide value, int divisor) {
    return {Half::divide(value.even, divisor), Half::divide(value.odd, divisor)};
  }

 private:
  using Half = HalfFormat<Float16Codec>;

  static HWY_INLINE Words word(std::uint32_t bits) { return hn::Set(WordTag(), bits); }

  static HWY_INLINE FloatPair widen_upper(HalfVector upper) {
    return Small::scaled(Float16Codec::widen(hn::BitCast(Bytes(), Small::as_float16(upper))));
  }

  static HWY_INLINE Words narrow_two(hn::Vec<FloatTag> even, hn::Vec<FloatTag> odd) {
    return hn::Or(narrow_word(even), hn::ShiftLeft<8>(narrow_word(odd)));
  }

  // A number is told in units of its last place, which does not shrink below the normal numbers.
  // Next to a number that is 2^kDropped times the exponent's power of two, that is the last place
  // of a float32: the adder rounds for us.
  static HWY_INLINE Words narrow_word(hn::Vec<FloatTag> value) {
    constexpr int kDropped = 23 - Small::kFractionBits;
    constexpr std::uint32_t kSmallest = Small::kSmallestExponent;
    const Words bits = hn::BitCast(WordTag(), value);
    const Words magnitude = hn::And(bits, word(0x7FFFFFFFu));
    const Words kept = hn::Min(magnitude, word(Small::kLargest));
    const Words exponent = hn::Max(hn::And(kept, word(0x7F800000u)), word(kSmallest << 23));
    const Words large = hn::Add(exponent, word(std::uint32_t{kDropped} << 23));
    const auto sum = hn::Add(hn::BitCast(FloatTag(), kept), hn::BitCast(FloatTag(), large));
    const Words units = hn::Sub(hn::BitCast(WordTag(), sum), large);
    const Words binade =
        hn::Sub(hn::ShiftRight<kDropped>(exponent), word(kSmallest << Small::kFractionBits));
    const Words number = hn::Add(binade, units);
    const Words code =
        hn::IfThenElse(hn::Gt(magnitude, word(0x7F800000u)), word(Small::kNaN), number);
    return hn::Or(code, hn::And(hn::ShiftRight<24>(bits), word(0x80u)));
  }
};

// The upper byte of a float16.
struct E5M2 {
  static constexpr int kFractionBits = 2;
  static constexpr std::uint32_t kSmallestExponent = 127 - 14;
  static constexpr std::uint32_t kLargest = 0x47600000u;  // 57344
  static constexpr std::uint32_t kNaN = 0x7E;

  template <class V>
  static HWY_INLINE V as_float16(V upper) {
    return upper;
  }
  static HWY_INLINE FloatPair scaled(FloatPair value) { return value; }
};

// Moved down by one bit, it is a float16 of 2^-8 times the value: the biases are 7 and 15. All ones
// are its only NaN.
struct E4M3 {
  static constexpr int kFractionBits = 3;
  static constexpr std::uint32_t kSmallestExponent = 127 - 6;
  static constexpr std::uint32_t kLargest = 0x43E00000u;  // 448
  static constexpr std::uint32_t kNaN = 0x7F;

  template <class V>
  static HWY_INLINE V as_float16(V upper) {
    const hn::DFromV<V> d;
    const hn::RebindToSigned<decltype(d)> signed_d;
    const V ones = hn::Set(d, std::uint16_t{0x7F00});
    const V nan = hn::VecFromMask(d, hn::Eq(hn::And(upper, ones), ones));
    const V down = hn::BitCast(d, hn::ShiftRight<1>(hn::BitCast(signed_d, upper)));
    return hn::Or(hn::And(down, hn::Set(d, std::uint16_t{0xBF80})), nan);
  }
  static HWY_INLINE FloatPair scaled(FloatPair value) {
    const auto by = hn::Set(FloatTag(), 256.0f);
    return {hn::Mul(value.low, by), hn::Mul(value.high, by)};
  }
};

using BFloat16Format = HalfFormat<BFloat16Codec>;
using Float8E4M3Format = Float8Format<E4M3>;
using Float8E5M2Format = Float8Format<E5M2>;

struct SumOp {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::Add(a, b);
    } else {
      const hn::RebindToUnsigned<D> u;
      return hn::BitCast(d, hn::Add(hn::BitCast(u, a), hn::BitCast(u, b)));
    }
  }
};

struct ProdOp {
  // No instruction set multiplies bytes: those of even and of odd number go through 16 bits, whose
  // lower half is the product of lower halves.
  template <class D, class V>
  static HWY_INLINE V multiply_bytes(D d, V a, V b) {
    const hn::Repartition<std::uint16_t, D> wide;
    const auto x = hn::BitCast(wide, a);
    const auto y = hn::BitCast(wide, b);
    const auto even = hn::And(hn::Mul(x, y), hn::Set(wide, std::uint16_t{0x00FF}));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
    return hn::BitCast(d, hn::Or(even, odd));
  }

  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::Mul(a, b);
    } else if constexpr (sizeof(hn::TFromD<D>) == 1) {
      return multiply_bytes(d, a, b);
    } else {
      const hn::RebindToUnsigned<D> u;
      return hn::BitCast(d, hn::Mul(hn::BitCast(u, a), hn::BitCast(u, b)));
    }
  }
};

// Neither less nor greater: equal, zeros of any sign, or a NaN among them. Then `or` keeps the
// NaN, and the sign of a -0.
struct MinOp {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Lt(b, a), b, hn::Or(a, b)));
    } else {
      return hn::Min(a, b);
    }
  }
};

// -min(-a, -b), so that the same holds with the signs turned.
struct MaxOp {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const V sign = hn::SignBit(d);
      return hn::Xor(MinOp::apply(d, hn::Xor(a, sign), hn::Xor(b, sign)), sign);
    } else {
      return hn::Max(a, b);
    }
  }
};

}  // namespace tutti::runtime::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
