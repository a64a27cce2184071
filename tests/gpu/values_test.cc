// Element types and passes of devices against those of the host: every 16- and 8-bit number, and
// reductions of random bits of any number of sources, at any address, bit by bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "runtime/gpu/passes.hpp"
#include "runtime/kernels/kernels.hpp"
#include "tutti/numeric.hpp"

namespace tutti::runtime::gpu {
namespace {

// NaN is NaN, whichever.
bool same(DataType type, const std::byte* a, const std::byte* b) {
  const auto read = [](auto value, const std::byte* from) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  const auto both_nan = [&](auto kind) {
    return std::isnan(to_float(read(kind, a))) && std::isnan(to_float(read(kind, b)));
  };
  if (std::memcmp(a, b, size_of(type)) == 0) return true;
  switch (type) {
    case DataType::float16:
      return both_nan(float16{});
    case DataType::bfloat16:
      return both_nan(bfloat16{});
    case DataType::float8_e4m3:
      return both_nan(float8_e4m3{});
    case DataType::float8_e5m2:
      return both_nan(float8_e5m2{});
    case DataType::float32:
      return std::isnan(read(0.0f, a)) && std::isnan(read(0.0f, b));
    case DataType::float64:
      return std::isnan(read(0.0, a)) && std::isnan(read(0.0, b));
    default:
      return false;
  }
}

template <class Format, class Small>
void expect_conversions(Small (*narrow)(float)) {
  using Bits = typename Format::Bits;
  for (std::uint32_t bits = 0; bits <= static_cast<Bits>(~Bits{0}); ++bits) {
    const float wanted = to_float(Small{static_cast<Bits>(bits)});
    const float got = Format::widen(static_cast<Bits>(bits));
    EXPECT_TRUE(std::isnan(wanted) ? std::isnan(got)
                                   : bits_as<std::uint32_t>(got) == bits_as<std::uint32_t>(wanted))
        << bits;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const float value = bits_as<float>(static_cast<std::uint32_t>(random()));
    const Small wanted = narrow(value);
    const Bits got = Format::narrow(value);
    ASSERT_TRUE(std::isnan(value) ? std::isnan(Format::widen(got)) : got == wanted.bits) << value;
  }
  // Halfway between two numbers, and next to it.
  for (std::uint32_t bits = 0; bits < static_cast<Bits>(~Bits{0}) / 2; ++bits) {
    const float low = to_float(Small{static_cast<Bits>(bits)});
    const float high = to_float(Small{static_cast<Bits>(bits + 1)});
    if (std::isnan(low) || std::isnan(high) || std::isinf(high)) continue;
    const float middle = low + (high - low) / 2;
    for (const float value : {middle, std::nextafter(middle, low), std::nextafter(middle, high)}) {
      ASSERT_EQ(Format::narrow(value), narrow(value).bits) << value;
      ASSERT_EQ(Format::narrow(-value), narrow(-value).bits) << -value;
    }
  }
}

TEST(DeviceValues, ConvertAsTheHostDoes) {
  expect_conversions<FormatOf<DataType::float16>, float16>(to_float16);
  expect_conversions<FormatOf<DataType::bfloat16>, bfloat16>(to_bfloat16);
  expect_conversions<FormatOf<DataType::float8_e4m3>, float8_e4m3>(to_float8_e4m3);
  expect_conversions<FormatOf<DataType::float8_e5m2>, float8_e5m2>(to_float8_e5m2);
}

// Random bits, and now and then what is special; not too large, so that sums stay numbers.
void fill(std::vector<std::byte>& memory, std::mt19937& random) {
  for (std::byte& b : memory) b = static_cast<std::byte>(random());
}

template <class Format>
void reduce_as(ReduceOp op, bool divides, const Team& team, const Pass& pass) {
  if (divides) return reduce<Format, AverageOp>(team, pass);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return reduce<Format, SumOp>(team, pass);
    case ReduceOp::prod:
      return reduce<Format, ProdOp>(team, pass);
    case ReduceOp::min:
      return reduce<Format, MinOp>(team, pass);
    case ReduceOp::max:
      return reduce<Format, MaxOp>(team, pass);
  }
}

// One pass of `sources` sources into two destinations; the team's threads one after the other.
template <DataType kType>
void expect_reduction(ReduceOp op, int sources, std::size_t count, std::size_t shift,
                      std::mt19937& random) {
  const std::size_t bytes = count * size_of(kType);
  std::vector<std::vector<std::byte>> memory(static_cast<std::size_t>(sources) + 4,
                                             std::vector<std::byte>(bytes + 64));
  std::vector<std::byte*> pointers;
  for (std::vector<std::byte>& m : memory) {
    fill(m, random);
    pointers.push_back(m.data() + shift * size_of(kType));
  }
  const bool divides = op == ReduceOp::avg && sources % 2 == 1;
  Pass pass;
  pass.sources = static_cast<std::uint32_t>(sources);
  pass.end = pass.sources + 3;
  pass.divisor = divides ? 5 : 1;
  pass.bytes = bytes;
  std::byte* const wanted = pointers.back();
  const std::vector<const std::byte*> from(pointers.begin(), pointers.begin() + sources);
  std::byte* const to[] = {wanted};
  if (count > 0) kernels::reduce({kType, op, from, to, count, divides ? 5 : 1});
  pointers[pass.sources + 1] = nullptr;
  pass.pointers = pointers.data();
  for (const std::uint32_t thread : {0U, 1U, 2U})
    reduce_as<FormatOf<kType>>(op, divides, {thread, 3}, pass);
  for (std::size_t i = 0; i < count; ++i)
    for (const std::uint32_t d : {pass.sources, pass.sources + 2})
      ASSERT_TRUE(same(kType, pointers[d] + i * size_of(kType), wanted + i * size_of(kType)))
          << to_string(kType) << " " << to_string(op) << " of " << sources << ", element " << i
          << " of " << count;
}

template <DataType kType>
void expect_reductions() {
  std::mt19937 random(static_cast<unsigned>(kType));
  for (const ReduceOp op : kAllReduceOps)
    for (const int sources : {1, 2, 3, 8, 9})
      for (const std::size_t count : {0UL, 1UL, 5UL, 97UL, 1003UL})
        for (const std::size_t shift : {0UL, 1UL})
          expect_reduction<kType>(op, sources, count, shift, random);
}

TEST(DeviceValues, ReduceToTheBitsOfTheHost) {
  expect_reductions<DataType::int8>();
  expect_reductions<DataType::uint8>();
  expect_reductions<DataType::int32>();
  expect_reductions<DataType::uint32>();
  expect_reductions<DataType::int64>();
  expect_reductions<DataType::uint64>();
  expect_reductions<DataType::float16>();
  expect_reductions<DataType::float32>();
  expect_reductions<DataType::float64>();
  expect_reductions<DataType::bfloat16>();
  expect_reductions<DataType::float8_e4m3>();
  expect_reductions<DataType::float8_e5m2>();
}

TEST(DevicePasses, CopyAnyBytesAnywhere) {
  std::mt19937 random(3);
  for (const std::size_t bytes : {0UL, 1UL, 15UL, 16UL, 100UL, 1000UL, 5003UL})
    for (std::size_t from = 0; from < 17; ++from)
      for (const std::size_t to : {0UL, 4UL, 9UL}) {
        std::vector<std::byte> source(bytes + 64);
        fill(source, random);
        std::vector<std::byte> first(bytes + 64, std::byte{0x5a});
        std::vector<std::byte> second = first;
        std::byte* pointers[] = {source.data() + from, first.data() + to, nullptr,
                                 source.data() + from, second.data() + from};
        Pass pass;
        pass.pointers = pointers;
        pass.sources = 1;
        pass.end = 5;
        pass.bytes = bytes;
        for (const std::uint32_t thread : {0U, 1U}) copy({thread, 2}, pass);
        EXPECT_TRUE(std::equal(pointers[0], pointers[0] + bytes, pointers[1]));
        EXPECT_TRUE(std::equal(pointers[0], pointers[0] + bytes, pointers[4]));
        EXPECT_EQ(pointers[1][bytes], std::byte{0x5a});
        EXPECT_EQ(pointers[4][bytes], std::byte{0x5a});
        EXPECT_TRUE(to == 0 || first[to - 1] == std::byte{0x5a});
      }
}

}  // namespace
}  // namespace tutti::runtime::gpu
