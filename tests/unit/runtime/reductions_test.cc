// Reductions that are more than a ReduceOp: sums with a factor for each rank, and operations of the
// caller's own, which see the ranks in their order. References are told here, element by element.
#include "tutti/reduction.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "processes.hpp"
#include "tutti/communicator.hpp"

namespace tutti {
namespace {

using runtime::testing::on_processes;
using ::testing::HasSubstr;

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

void on_ranks(int size, const std::function<void(Communicator&)>& body,
              const CommunicatorOptions& options = {}) {
  auto communicators = Communicator::for_threads(size, options);
  ASSERT_TRUE(communicators.ok()) << communicators.status().to_string();
  std::vector<std::thread> threads;
  for (Communicator& communicator : *communicators)
    threads.emplace_back([&] { body(communicator); });
  for (std::thread& thread : threads) thread.join();
}

template <typename T>
T make(double value) {
  const auto single = static_cast<float>(value);
  if constexpr (std::is_same_v<T, float16>)
    return to_float16(single);
  else if constexpr (std::is_same_v<T, bfloat16>)
    return to_bfloat16(single);
  else if constexpr (std::is_same_v<T, float8_e4m3>)
    return to_float8_e4m3(single);
  else if constexpr (std::is_same_v<T, float8_e5m2>)
    return to_float8_e5m2(single);
  else
    return static_cast<T>(value);
}

// ---- A factor for each rank ----

// Scalars 1 and 2, elements 0 and 1: at 9 ranks sums to 13, which all types but one hold exactly;
// float8_e5m2 counts in steps of 2 from 8 on, so there every other rank gives nothing.
template <typename T>
double element(Rank rank, std::size_t i) {
  if (std::is_same_v<T, float8_e5m2> && rank >= 4) return 0;
  return static_cast<double>((i + idx(rank)) % 2);
}

double scalar_of(Rank rank) { return rank % 2 == 0 ? 1 : 2; }

template <typename T>
T scaled_sum(int ranks, std::size_t i) {
  double sum = 0;
  for (Rank rank = 0; rank < ranks; ++rank) sum += scalar_of(rank) * element<T>(rank, i);
  return make<T>(sum);
}

template <typename T>
std::vector<T> elements(Rank rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = make<T>(element<T>(rank, i));
  return values;
}

template <typename T>
bool sums(const T* values, std::size_t first, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i)
    if (!(values[i] == scaled_sum<T>(ranks, first + i))) return false;
  return true;
}

template <typename T>
bool scales_and_sums(Communicator& comm, std::size_t count) {
  const int n = comm.size();
  const Rank me = comm.rank();
  const DataType type = data_type_of<T>();
  const auto op = Reduction::premul_sum(make<T>(scalar_of(me)));
  const auto input = elements<T>(me, count * idx(n));
  const auto before = input;
  std::vector<T> output(count + 1);
  bool well = comm.all_reduce(input.data(), output.data(), count, type, op).ok();
  well = well && sums(output.data(), 0, count, n);
  auto data = elements<T>(me, count);
  well = well && comm.all_reduce(std::span<T>(data), op).ok() && sums(data.data(), 0, count, n);
  well = well && comm.reduce_scatter(input.data(), output.data(), count, type, op).ok();
  well = well && sums(output.data(), idx(me) * count, count, n);
  auto whole = input;
  T* const own = whole.data() + idx(me) * count;
  well = well && comm.reduce_scatter(whole.data(), own, count, type, op).ok();
  well = well && sums(own, idx(me) * count, count, n);
  const Rank root = n - 1;
  well = well && comm.reduce(input.data(), output.data(), count, type, op, root).ok();
  well = well && (me != root || sums(output.data(), 0, count, n));
  data = elements<T>(me, count);
  well = well && comm.reduce(data.data(), data.data(), count, type, op, root).ok();
  well = well && (me != root || sums(data.data(), 0, count, n));
  std::vector<std::size_t> counts(idx(n), count);
  counts.back() = 0;
  well = well && comm.reduce_scatter_v(input.data(), output.data(), {counts}, type, op).ok();
  well = well && sums(output.data(), idx(me) * count, counts[idx(me)], n);
  const std::size_t bytes = input.size() * sizeof(T);
  return well && (bytes == 0 || std::memcmp(input.data(), before.data(), bytes) == 0);
}

class SpecialReductions : public ::testing::TestWithParam<int> {};

TEST_P(SpecialReductions, PremulSumOfEveryType) {
  on_ranks(GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {0U, 1U, 257U, 5003U}) {
      EXPECT_TRUE(scales_and_sums<float>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<double>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<float16>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<bfloat16>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<float8_e4m3>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<float8_e5m2>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<std::int8_t>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<std::uint8_t>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<std::int32_t>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<std::uint32_t>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<std::int64_t>(comm, count)) << count;
      EXPECT_TRUE(scales_and_sums<std::uint64_t>(comm, count)) << count;
    }
  });
}

// ---- Operations of the caller's own ----

// x -> slope * x + offset, composed left to right; whole numbers modulo 2^64 are exact.
struct Affine {
  std::uint64_t slope;
  std::uint64_t offset;
  friend bool operator==(const Affine&, const Affine&) = default;
};

Affine then(const Affine& first, const Affine& second) {
  return {first.slope * second.slope, second.slope * first.offset + second.offset};
}

void compose(const void* left, const void* right, void* result, std::size_t count, DataType type) {
  ASSERT_EQ(type, DataType::uint64);
  const auto* a = static_cast<const Affine*>(left);
  const auto* b = static_cast<const Affine*>(right);
  auto* c = static_cast<Affine*>(result);
  for (std::size_t i = 0; i < count; ++i) c[i] = then(a[i], b[i]);
}

Affine map_of(Rank rank, std::size_t i) {
  return {2 * ((i * 7 + idx(rank) * 13) % 101) + 3, i * 31 + idx(rank) * 17 + 1};
}

Affine composed(int ranks, std::size_t i) {
  Affine all = map_of(0, i);
  for (Rank rank = 1; rank < ranks; ++rank) all = then(all, map_of(rank, i));
  return all;
}

std::vector<Affine> maps(Rank rank, std::size_t count) {
  std::vector<Affine> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = map_of(rank, i);
  return values;
}

bool are_composed(const Affine* values, std::size_t first, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i)
    if (!(values[i] == composed(ranks, first + i))) return false;
  return true;
}

Reduction affine() { return Reduction::custom("affine", compose, 2); }

// `count` maps, each of two elements.
bool composes(Communicator& comm, std::size_t count) {
  const int n = comm.size();
  const Rank me = comm.rank();
  const auto type = DataType::uint64;
  const auto input = maps(me, count * idx(n));
  std::vector<Affine> output(count + 1);
  bool well = comm.all_reduce(input.data(), output.data(), 2 * count, type, affine()).ok();
  well = well && are_composed(output.data(), 0, count, n);
  auto data = maps(me, count);
  well = well && comm.all_reduce(data.data(), data.data(), 2 * count, type, affine()).ok();
  well = well && are_composed(data.data(), 0, count, n);
  well = well && comm.reduce_scatter(input.data(), output.data(), 2 * count, type, affine()).ok();
  well = well && are_composed(output.data(), idx(me) * count, count, n);
  const Rank root = n / 2;
  well = well && comm.reduce(input.data(), output.data(), 2 * count, type, affine(), root).ok();
  well = well && (me != root || are_composed(output.data(), 0, count, n));
  std::vector<std::size_t> counts(idx(n), 2 * count);
  counts[0] = 0;
  well = well && comm.reduce_scatter_v(input.data(), output.data(), {counts}, type, affine()).ok();
  const std::size_t first = me == 0 ? 0 : (idx(me) - 1) * count;
  return well && are_composed(output.data(), first, counts[idx(me)] / 2, n);
}

TEST_P(SpecialReductions, CustomOperationsSeeRanksInOrder) {
  for (const char* lowering : {"direct", "staged"})
    for (const std::size_t slice : {std::size_t{0}, std::size_t{1024}}) {
      CommunicatorOptions options;
      options.lowering = lowering;
      options.slice_bytes = slice;
      on_ranks(
          GetParam(),
          [](Communicator& comm) {
            for (const std::size_t count : {0U, 1U, 3U, 257U, 5003U})
              EXPECT_TRUE(composes(comm, count)) << count;
          },
          options);
    }
}

TEST_P(SpecialReductions, EveryAlgorithmThatServesKeepsTheOrder) {
  for (const std::string algorithm : {"binomial", "one_shot", "doubling", "halving_doubling"}) {
    CommunicatorOptions options;
    options.algorithm = algorithm;
    on_ranks(
        GetParam(),
        [&](Communicator& comm) {
          auto data = maps(comm.rank(), 100);
          const Status status =
              comm.all_reduce(data.data(), data.data(), 200, DataType::uint64, affine());
          const bool power = (comm.size() & (comm.size() - 1)) == 0;
          const bool serves = algorithm == "binomial" || algorithm == "one_shot" || power;
          EXPECT_EQ(status.ok(), serves) << algorithm << " " << status.to_string();
          EXPECT_EQ(serves, are_composed(data.data(), 0, 100, comm.size()) && status.ok());
        },
        options);
  }
}

// Whatever the order in which they add: ranks that go different ways by what they have must not.
TEST_P(SpecialReductions, AllRanksGetTheSameBits) {
  constexpr std::size_t kCount = 257;
  for (const char* algorithm :
       {"direct", "ring", "tree", "doubling", "one_shot", "binomial", "halving_doubling"}) {
    CommunicatorOptions options;
    options.algorithm = algorithm;
    std::vector<std::vector<float>> results(idx(GetParam()));
    on_ranks(
        GetParam(),
        [&](Communicator& comm) {
          std::vector<float>& data = results[idx(comm.rank())];
          for (std::size_t i = 0; i < kCount; ++i)
            data.push_back(1.0F / static_cast<float>(3 + 7 * idx(comm.rank()) + i));
          const Status status = comm.all_reduce(std::span<float>(data), ReduceOp::sum);
          EXPECT_TRUE(status.ok()) << status.to_string();
        },
        options);
    for (const std::vector<float>& result : results) EXPECT_EQ(result, results[0]) << algorithm;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SpecialReductions, ::testing::Range(1, 10));

// Not even associative numbers, but a function of the order alone: who wrote last.
TEST(Reduction, TheLastWriterWins) {
  on_ranks(5, [](Communicator& comm) {
    const auto last = [](const void*, const void* right, void* result, std::size_t count,
                         DataType type) { std::memcpy(result, right, count * size_of(type)); };
    std::vector<bfloat16> data(1000, to_bfloat16(static_cast<float>(comm.rank())));
    ASSERT_TRUE(comm.all_reduce(std::span<bfloat16>(data), Reduction::custom("last", last)).ok());
    for (const bfloat16 value : data) ASSERT_EQ(to_float(value), 4.0F);
  });
}

// Values are never cut, so slices must hold a whole one.
TEST(Reduction, ValuesMayBeWide) {
  const auto last = [](const void*, const void* right, void* result, std::size_t count,
                       DataType type) { std::memcpy(result, right, 5000 * count * size_of(type)); };
  on_ranks(4, [&](Communicator& comm) {
    std::vector<double> data(35'000, comm.rank());
    const Status status =
        comm.all_reduce(std::span<double>(data), Reduction::custom("last", last, 5000));
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (const double value : data) ASSERT_EQ(value, 3.0);
    const Status refused =
        comm.all_reduce(std::span<double>(data), Reduction::custom("last", last, 35'000));
    EXPECT_EQ(refused.code(), StatusCode::unsupported);
    EXPECT_THAT(refused.message(), HasSubstr("slices of 131072 bytes cannot hold"));
    EXPECT_TRUE(comm.barrier().ok());
    // The same communicator, shape and type with a ReduceOp: nothing is left of the width.
    data.assign(7, comm.rank());
    ASSERT_TRUE(comm.all_reduce(std::span<double>(data), ReduceOp::sum).ok());
    EXPECT_EQ(data[6], 6.0);
  });
}

TEST(Reduction, AsynchronousAndGroupedCallsKeepWhatTheyNeed) {
  on_ranks(3, [](Communicator& comm) {
    const Rank me = comm.rank();
    auto first = maps(me, 50);
    std::vector<float> second(100, 1.0F);
    std::vector<Work> works;
    auto work = comm.all_reduce_async(first.data(), first.data(), 100, DataType::uint64, affine());
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    works.push_back(*std::move(work));
    // The second one scales what the first one has summed: 3 times 2.
    for (const float scalar : {1.0F, 2.0F}) {
      work = comm.all_reduce_async(second.data(), second.data(), second.size(), DataType::float32,
                                   Reduction::premul_sum(scalar));
      ASSERT_TRUE(work.ok()) << work.status().to_string();
      works.push_back(*std::move(work));
    }
    for (Work& each : works) ASSERT_TRUE(each.wait().ok());
    EXPECT_TRUE(are_composed(first.data(), 0, 50, 3));
    EXPECT_EQ(second[99], 18.0F);
    auto grouped = maps(me, 50);
    ASSERT_TRUE(comm.group_begin().ok());
    ASSERT_TRUE(
        comm.all_reduce(grouped.data(), grouped.data(), 100, DataType::uint64, affine()).ok());
    ASSERT_TRUE(comm.all_reduce(std::span<float>(second), Reduction::premul_sum(0.5F)).ok());
    ASSERT_TRUE(comm.group_end().ok());
    EXPECT_TRUE(are_composed(grouped.data(), 0, 50, 3));
    EXPECT_EQ(second[0], 27.0F);
  });
}

TEST(Reduction, ProcessesOverEveryTransport) {
  for (const char* transport : {"shm", "tcp"}) {
    CommunicatorOptions options;
    options.transport = transport;
    EXPECT_TRUE(on_processes(3, options, [](Communicator& comm) {
      return composes(comm, 1) && composes(comm, 20'011) && scales_and_sums<float>(comm, 3) &&
             scales_and_sums<bfloat16>(comm, 50'021);
    })) << transport;
  }
}

TEST(Reduction, WhatCannotBeRightIsRefused) {
  on_ranks(2, [](Communicator& comm) {
    std::vector<float> data(9, 1.0F);
    auto reduce = [&](const Reduction& op) { return comm.all_reduce(std::span<float>(data), op); };
    Status status = reduce(Reduction::premul_sum(2.0));
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(),
                HasSubstr("scalar of premul_sum is double, the elements are float"));
    status = reduce(Reduction::custom("pair", compose, 2));
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("9 elements"));
    EXPECT_EQ(reduce(Reduction::custom("", compose)).code(), StatusCode::invalid_argument);
    EXPECT_EQ(reduce(Reduction::custom("none", {})).code(), StatusCode::invalid_argument);
    EXPECT_EQ(reduce(Reduction::custom("thin", compose, 0)).code(), StatusCode::invalid_argument);
    ASSERT_TRUE(comm.group_begin().ok());
    EXPECT_EQ(reduce(Reduction::premul_sum(2.0)).code(), StatusCode::invalid_argument);
    ASSERT_TRUE(comm.group_end().ok());
    EXPECT_TRUE(reduce(Reduction::premul_sum(2.0F)).ok()) << "nothing has happened";
    EXPECT_EQ(data[8], 4.0F);
    const std::size_t counts[] = {4, 5};
    std::vector<float> output(5);
    status = comm.reduce_scatter_v(data.data(), output.data(), {counts}, DataType::float32,
                                   Reduction::custom("triple", compose, 3));
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("4 elements are no whole number"));
  });
}

TEST(Reduction, DifferentOperationsAreAMismatch) {
  const auto first = [](const void* left, const void*, void* result, std::size_t count,
                        DataType type) { std::memcpy(result, left, count * size_of(type)); };
  const std::function<Reduction(Rank)> pairs[] = {
      [&](Rank rank) { return Reduction::custom(rank == 0 ? "first" : "last", first); },
      [&](Rank rank) { return Reduction::custom("first", first, rank == 0 ? 1 : 2); },
      [&](Rank rank) { return rank == 0 ? Reduction(ReduceOp::sum) : Reduction::premul_sum(1.0F); },
      [&](Rank rank) {
        return rank == 0 ? Reduction(ReduceOp::sum) : Reduction::custom("first", first);
      }};
  for (const auto& pair : pairs)
    on_ranks(2, [&](Communicator& comm) {
      std::vector<float> data(64, 1.0F);
      const Status status = comm.all_reduce(std::span<float>(data), pair(comm.rank()));
      EXPECT_EQ(status.code(), StatusCode::mismatch) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("different calls"));
    });
}

TEST(Reduction, HasAName) {
  EXPECT_EQ(Reduction(ReduceOp::avg).name(), "avg");
  EXPECT_EQ(Reduction::premul_sum(1.0F).name(), "premul_sum");
  EXPECT_EQ(affine().name(), "custom operation 'affine'");
}

}  // namespace
}  // namespace tutti
