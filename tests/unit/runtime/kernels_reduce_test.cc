// Every element type, operation, number of sources and destinations, odd count, alignment and
// aliasing against the reference, on every instruction set.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "kernels_reference.hpp"
#include "kernels_targets.hpp"
#include "runtime/kernels/kernels.hpp"

namespace tutti::runtime::kernels {
namespace {

constexpr std::size_t kManySources = 9;
constexpr std::size_t kMaxSources = 17;
constexpr std::size_t kMaxDestinations = 4;
constexpr std::size_t kMaxCount = 4099;
constexpr std::size_t kCounts[] = {0, 1, 2, 3, 5, 7, 13, 31, 63, 64, 65, 127, 1000, kMaxCount};
constexpr std::size_t kStreamedCount = 20011;
constexpr std::size_t kMargin = 128;
constexpr std::byte kUntouched{0xA5};

// Where the buffers lie.
enum class Layout {
  aligned,
  odd_addresses,
  in_place,
  unclaimed,
  paged,
  streaming,
  streaming_in_place,
  streaming_apart,  // at different distances from a cache line
};
constexpr Layout kLayouts[] = {
    Layout::aligned, Layout::odd_addresses, Layout::in_place,           Layout::unclaimed,
    Layout::paged,   Layout::streaming,     Layout::streaming_in_place, Layout::streaming_apart};

bool is_in_place(Layout layout) {
  return layout == Layout::in_place || layout == Layout::streaming_in_place;
}

bool is_streaming(Layout layout) {
  return layout == Layout::streaming || layout == Layout::streaming_in_place ||
         layout == Layout::streaming_apart;
}

// A buffer with margins that must stay as they are.
class Guarded {
 public:
  explicit Guarded(std::size_t capacity) : bytes_(2 * kMargin + 64 + capacity) {}

  std::byte* reset(std::size_t shift, std::size_t size) {
    std::fill(bytes_.begin(), bytes_.end(), kUntouched);
    const std::size_t address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    begin_ = kMargin + (64 - address % 64) % 64 + shift;
    size_ = size;
    return data();
  }
  std::byte* data() { return bytes_.data() + begin_; }

  bool margins_intact() const {
    for (std::size_t i = 0; i < kMargin; ++i) {
      if (bytes_[begin_ - 1 - i] != kUntouched) return false;
      if (begin_ + size_ + i < bytes_.size() && bytes_[begin_ + size_ + i] != kUntouched)
        return false;
    }
    return true;
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
};

std::size_t shift_of(Layout layout, std::size_t buffer, std::size_t element_bytes) {
  if (layout == Layout::odd_addresses) return 2 * buffer + 1;
  if (layout == Layout::streaming_apart) return (buffer % 5 + 1) * element_bytes;
  if (is_streaming(layout)) return 3 * element_bytes;
  return 0;
}

template <DataType kType>
class Comparison {
 public:
  using Stored = reference::Stored<kType>;

  explicit Comparison(std::size_t max_count)
      : inputs_(kMaxSources, Guarded(max_count * sizeof(Stored))),
        outputs_(kMaxDestinations, Guarded(max_count * sizeof(Stored))) {
    for (std::size_t s = 0; s < kMaxSources; ++s)
      columns_.push_back(reference::random_values<kType>(max_count, 100 + s));
  }

  // From step to step, of the numbers of sources and of destinations.
  void all_shapes(ReduceOp op, std::size_t source_step = 1, std::size_t destination_step = 1) {
    for (std::size_t sources = 1; sources <= kManySources; sources += source_step) {
      const int divisor = op == ReduceOp::avg ? static_cast<int>(sources) : 1;
      const auto expected = reference::reduce<kType>(op, columns_, sources, divisor);
      for (std::size_t destinations = 1; destinations <= kMaxDestinations;
           destinations += destination_step)
        for (std::size_t count : kCounts)
          for (Layout layout : kLayouts)
            one(call(op, count, divisor), sources, destinations, layout, expected);
    }
  }

  void divisors() {
    for (int divisor : {1, 2, 3, 7, 1000}) {
      const auto expected = reference::reduce<kType>(ReduceOp::avg, columns_, 3, divisor);
      one(call(ReduceOp::avg, kMaxCount, divisor), 3, 2, Layout::aligned, expected);
    }
  }

  // Long enough that whole pages bypass the caches.
  void streams() {
    for (ReduceOp op : kAllReduceOps)
      for (std::size_t sources = 2; sources <= 4; ++sources) {
        const auto expected = reference::reduce<kType>(op, columns_, sources, 1);
        for (std::size_t destinations = 1; destinations <= 2; ++destinations)
          for (Layout layout : kLayouts)
            one(call(op, kStreamedCount, 1), sources, destinations, layout, expected);
      }
  }

  // Every shape that a tree has at its right end, both ways past the caches and not.
  void trees(ReduceOp op, std::size_t count) {
    for (std::size_t sources = 2; sources <= kMaxSources; ++sources) {
      const int divisor = op == ReduceOp::avg ? static_cast<int>(sources) : 1;
      const auto expected =
          reference::reduce<kType>(op, columns_, sources, divisor, reference::Order::tree);
      ReduceCall tree = call(op, count, divisor);
      tree.tree = true;
      for (Layout layout : kLayouts) one(tree, sources, 2, layout, expected);
    }
  }

 private:
  static ReduceCall call(ReduceOp op, std::size_t count, int divisor) {
    return {.type = kType,
            .op = op,
            .sources = {},
            .destinations = {},
            .count = count,
            .divisor = divisor};
  }

  void one(ReduceCall call, std::size_t sources, std::size_t destinations, Layout layout,
           const std::vector<Stored>& expected) {
    const std::size_t bytes = call.count * sizeof(Stored);
    std::array<const std::byte*, kMaxSources> from{};
    for (std::size_t s = 0; s < sources; ++s) {
      std::byte* data = inputs_[s].reset(shift_of(layout, s, sizeof(Stored)), bytes);
      if (bytes > 0) std::memcpy(data, columns_[s].data(), bytes);
      from[s] = data;
    }
    // In place, the destinations are the last sources.
    std::array<Guarded*, kMaxDestinations> results{};
    std::array<std::byte*, kMaxDestinations> to{};
    for (std::size_t d = 0; d < destinations; ++d) {
      const bool reuse = is_in_place(layout) && d < sources;
      results[d] = reuse ? &inputs_[sources - 1 - d] : &outputs_[d];
      if (!reuse) results[d]->reset(shift_of(layout, d + 5, sizeof(Stored)), bytes);
      to[d] = results[d]->data();
    }
    call.sources = {from.data(), sources};
    call.destinations = {to.data(), destinations};
    call.stores = is_streaming(layout)          ? StoreHint::streaming
                  : layout == Layout::unclaimed ? StoreHint::unclaimed
                  : layout == Layout::paged     ? StoreHint::paged
                                                : StoreHint::cached;
    reduce(call);
    for (std::size_t d = 0; d < destinations; ++d) check(call, *results[d], d, layout, expected);
  }

  void check(const ReduceCall& call, Guarded& result, std::size_t d, Layout layout,
             const std::vector<Stored>& expected) {
    const auto where = [&] {
      return testing::Message() << to_string(kType) << " " << to_string(call.op) << ", "
                                << call.sources.size() << " sources, destination " << d << " of "
                                << call.destinations.size() << ", count " << call.count
                                << ", layout " << static_cast<int>(layout) << ", divisor "
                                << call.divisor;
    };
    ASSERT_TRUE(result.margins_intact()) << where();
    for (std::size_t i = 0; i < call.count; ++i) {
      Stored got;
      std::memcpy(&got, result.data() + i * sizeof(Stored), sizeof(Stored));
      ASSERT_TRUE(reference::same<kType>(got, expected[i]))
          << where() << ", element " << i << ": got " << got << ", expected " << expected[i];
    }
  }

  std::vector<std::vector<Stored>> columns_;
  std::vector<Guarded> inputs_;
  std::vector<Guarded> outputs_;
};

template <DataType kType>
void compare_everything() {
  Comparison<kType> comparison(kMaxCount);
  for (ReduceOp op : kAllReduceOps) {
    comparison.all_shapes(op);
    if (testing::Test::HasFatalFailure()) return;
  }
  comparison.divisors();
  Comparison<kType>(kStreamedCount).streams();
}

template <DataType kType>
void compare_trees() {
  Comparison<kType> comparison(kStreamedCount);
  for (std::size_t count : {std::size_t{1}, std::size_t{13}, kStreamedCount}) {
    comparison.trees(ReduceOp::sum, count);
    if (testing::Test::HasFatalFailure()) return;
  }
  comparison.trees(ReduceOp::avg, kStreamedCount);
}

// The loops are those of the wider types, hence a few shapes; every pair of values is below.
template <DataType kType>
void compare_some() {
  Comparison<kType> comparison(kMaxCount);
  for (ReduceOp op : kAllReduceOps) {
    comparison.all_shapes(op, 4, 3);
    if (testing::Test::HasFatalFailure()) return;
  }
  comparison.divisors();
}

class KernelsReduce : public OnTarget {};

TEST_P(KernelsReduce, Float32) { compare_everything<DataType::float32>(); }
TEST_P(KernelsReduce, Float64) { compare_everything<DataType::float64>(); }
TEST_P(KernelsReduce, Int8) { compare_everything<DataType::int8>(); }
TEST_P(KernelsReduce, UInt8) { compare_everything<DataType::uint8>(); }
TEST_P(KernelsReduce, UInt32) { compare_everything<DataType::uint32>(); }
TEST_P(KernelsReduce, UInt64) { compare_everything<DataType::uint64>(); }
TEST_P(KernelsReduce, Int32) { compare_everything<DataType::int32>(); }
TEST_P(KernelsReduce, Int64) { compare_everything<DataType::int64>(); }
TEST_P(KernelsReduce, BFloat16) { compare_everything<DataType::bfloat16>(); }
TEST_P(KernelsReduce, Float16) { compare_everything<DataType::float16>(); }
TEST_P(KernelsReduce, Float8E4M3) { compare_some<DataType::float8_e4m3>(); }
TEST_P(KernelsReduce, Float8E5M2) { compare_some<DataType::float8_e5m2>(); }

TEST_P(KernelsReduce, TreesOfFloat32) { compare_trees<DataType::float32>(); }
TEST_P(KernelsReduce, TreesOfFloat64) { compare_trees<DataType::float64>(); }
TEST_P(KernelsReduce, TreesOfBFloat16) { compare_trees<DataType::bfloat16>(); }
TEST_P(KernelsReduce, TreesOfFloat16) { compare_trees<DataType::float16>(); }
TEST_P(KernelsReduce, TreesOfFloat8E4M3) { compare_trees<DataType::float8_e4m3>(); }

std::vector<std::uint16_t> every_16_bit_value() {
  std::vector<std::uint16_t> values(65536);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i);
  return values;
}

template <DataType kType>
using Column = std::vector<reference::Stored<kType>>;

template <DataType kType>
Column<kType> reduce_two(ReduceOp op, const Column<kType>& a, const Column<kType>& b,
                         int divisor = 1) {
  Column<kType> result(a.size());
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                      reinterpret_cast<const std::byte*>(b.data())};
  std::byte* const destinations[] = {reinterpret_cast<std::byte*>(result.data())};
  reduce({.type = kType,
          .op = op,
          .sources = sources,
          .destinations = destinations,
          .count = a.size(),
          .divisor = divisor});
  return result;
}

// Against the special values, every 16-bit value meets ties, overflow and subnormal results.
template <DataType kType>
void compare_every_16_bit_value() {
  const auto every = every_16_bit_value();
  for (ReduceOp op : kAllReduceOps) {
    for (std::uint16_t special : reference::special_values<kType>()) {
      const std::vector<std::uint16_t> others(every.size(), special);
      const auto got = reduce_two<kType>(op, every, others);
      const auto expected = reference::reduce<kType>(op, {every, others}, 2, 1);
      for (std::size_t i = 0; i < every.size(); ++i)
        ASSERT_TRUE(reference::same<kType>(got[i], expected[i]))
            << to_string(op) << " of " << i << " and " << special << ": got " << got[i]
            << ", expected " << expected[i];
    }
  }
}

TEST_P(KernelsReduce, EveryBFloat16) { compare_every_16_bit_value<DataType::bfloat16>(); }
TEST_P(KernelsReduce, EveryFloat16) { compare_every_16_bit_value<DataType::float16>(); }

// Every value with every value.
template <DataType kType>
void compare_every_8_bit_pair() {
  Column<kType> a(65536), b(65536);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint8_t>(i / 256);
    b[i] = static_cast<std::uint8_t>(i % 256);
  }
  for (ReduceOp op : kAllReduceOps) {
    const int divisor = op == ReduceOp::avg ? 3 : 1;
    const auto got = reduce_two<kType>(op, a, b, divisor);
    const auto expected = reference::reduce<kType>(op, {a, b}, 2, divisor);
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_TRUE(reference::same<kType>(got[i], expected[i]))
          << to_string(op) << " of " << int{a[i]} << " and " << int{b[i]} << ": got " << int{got[i]}
          << ", expected " << int{expected[i]};
  }
}

TEST_P(KernelsReduce, EveryFloat8E4M3) { compare_every_8_bit_pair<DataType::float8_e4m3>(); }
TEST_P(KernelsReduce, EveryFloat8E5M2) { compare_every_8_bit_pair<DataType::float8_e5m2>(); }

// Known by hand, so that the reference itself is held to something.
TEST_P(KernelsReduce, TiesOfFloat16GoToEven) {
  // 2048 + 1 lies between 2048 and 2050; 2050 + 1 between 2050 and 2052; 65504 + 16 between the
  // largest value and infinity; 2^-24 + 2^-24 stays subnormal.
  const auto got = reduce_two<DataType::float16>(ReduceOp::sum, {0x6800, 0x6801, 0x7BFF, 0x0001},
                                                 {0x3C00, 0x3C00, 0x4C00, 0x0001});
  EXPECT_EQ(got, (std::vector<std::uint16_t>{0x6800, 0x6802, 0x7C00, 0x0002}));
}

TEST_P(KernelsReduce, TiesOfBFloat16GoToEven) {
  // 256 + 1 lies between 256 and 258; 258 + 1 between 258 and 260.
  const auto got = reduce_two<DataType::bfloat16>(ReduceOp::sum, {0x4380, 0x4381, 0x0001},
                                                  {0x3F80, 0x3F80, 0x0001});
  EXPECT_EQ(got, (std::vector<std::uint16_t>{0x4380, 0x4382, 0x0002}));
}

TEST_P(KernelsReduce, TiesOfFloat8E4M3GoToEvenAndOverflowSaturates) {
  // 16 + 1 lies between 16 and 18; 18 + 1 between 18 and 20; 448 + 448 is above the largest value;
  // 2^-9 + 2^-9 stays subnormal.
  const auto got = reduce_two<DataType::float8_e4m3>(ReduceOp::sum, {0x58, 0x59, 0x7E, 0xFE, 0x01},
                                                     {0x38, 0x38, 0x7E, 0xFE, 0x01});
  EXPECT_EQ(got, (Column<DataType::float8_e4m3>{0x58, 0x5A, 0x7E, 0xFE, 0x02}));
}

TEST_P(KernelsReduce, TiesOfFloat8E5M2GoToEvenAndOverflowSaturates) {
  // 8 + 1 lies between 8 and 10; 10 + 1 between 10 and 12; so do infinities end.
  const auto got = reduce_two<DataType::float8_e5m2>(
      ReduceOp::sum, {0x48, 0x49, 0x7B, 0x7C, 0xFC, 0x01}, {0x3C, 0x3C, 0x7B, 0x3C, 0x3C, 0x01});
  EXPECT_EQ(got, (Column<DataType::float8_e5m2>{0x48, 0x4A, 0x7B, 0x7B, 0xFB, 0x02}));
}

// 1 + 2^-4 + 2^-4 in f8e4m3: two roundings would lose both small terms, one keeps their sum.
TEST_P(KernelsReduce, Float8IsRoundedOnceOverAllSources) {
  const std::uint8_t one = 0x38;
  const std::uint8_t small = 0x18;
  std::uint8_t result = 0;
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(&one),
                                      reinterpret_cast<const std::byte*>(&small),
                                      reinterpret_cast<const std::byte*>(&small)};
  std::byte* const destinations[] = {reinterpret_cast<std::byte*>(&result)};
  reduce({.type = DataType::float8_e4m3,
          .op = ReduceOp::sum,
          .sources = sources,
          .destinations = destinations,
          .count = 1});
  EXPECT_EQ(result, 0x39);
}

// 1 + 2^-11 + 2^-11 in float16: two roundings would lose both small terms, one keeps their sum.
TEST_P(KernelsReduce, Float16IsRoundedOnceOverAllSources) {
  const std::uint16_t one = 0x3C00;
  const std::uint16_t small = 0x1000;
  std::uint16_t result = 0;
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(&one),
                                      reinterpret_cast<const std::byte*>(&small),
                                      reinterpret_cast<const std::byte*>(&small)};
  std::byte* const destinations[] = {reinterpret_cast<std::byte*>(&result)};
  reduce({.type = DataType::float16,
          .op = ReduceOp::sum,
          .sources = sources,
          .destinations = destinations,
          .count = 1});
  EXPECT_EQ(result, 0x3C01);
}

TEST_P(KernelsReduce, IntegersTruncateTowardZeroWhenDivided) {
  std::int32_t small[] = {-7, 7, -1, 1, 2147483647};
  divide(DataType::int32, reinterpret_cast<std::byte*>(small), 5, 2);
  EXPECT_EQ(std::vector<std::int32_t>(small, small + 5),
            (std::vector<std::int32_t>{-3, 3, 0, 0, 1073741823}));
  std::int64_t large[] = {-9223372036854775807 - 1, 9223372036854775807, -5};
  divide(DataType::int64, reinterpret_cast<std::byte*>(large), 3, 3);
  EXPECT_EQ(std::vector<std::int64_t>(large, large + 3),
            (std::vector<std::int64_t>{-3074457345618258602, 3074457345618258602, -1}));
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelsReduce, testing::ValuesIn(runnable_targets()), name_of);

TEST(KernelsReduceDeathTest, RefusesWhatHasNoMeaning) {
  float value = 1;
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(&value)};
  std::byte* const destinations[] = {reinterpret_cast<std::byte*>(&value)};
  ReduceCall call = {.type = DataType::float32,
                     .op = ReduceOp::sum,
                     .sources = sources,
                     .destinations = destinations,
                     .count = 1,
                     .divisor = 2};
  EXPECT_DEATH(reduce(call), "only an average divides");
  call.divisor = 1;
  call.sources = {};
  EXPECT_DEATH(reduce(call), "needs a source");
}

}  // namespace
}  // namespace tutti::runtime::kernels
