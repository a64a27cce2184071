// reduce_order=rank_tree: the same bits however a reduction is done, and those of a plain fold
// along the tree over the ranks, which is told here independently of all schedules. Inputs are of
// very different sizes, so that nearly every other order or rounding would be seen.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "processes.hpp"
#include "tutti/communicator.hpp"

namespace tutti {
namespace {

using runtime::testing::on_processes;

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

std::uint64_t mixed(std::uint64_t seed) {
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebULL;
  return seed ^ (seed >> 31);
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

// Factors near 1, so that products neither vanish nor overflow.
template <typename T>
T contribution(Rank rank, std::size_t i, ReduceOp op) {
  const std::uint64_t bits = mixed(i * 31 + idx(rank) * 0x9e3779b97f4a7c15ULL + 1);
  const double fraction = static_cast<double>(bits >> 11) / 9007199254740992.0;
  if (op == ReduceOp::prod) return make<T>(0.7 + 0.6 * fraction);
  const int power = static_cast<int>(bits % 9) - 6;
  return make<T>(std::ldexp(bits & 1024 ? fraction + 0.5 : -fraction - 0.5, power));
}

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
Wide<T> widened(T value) {
  if constexpr (std::is_arithmetic_v<T>)
    return value;
  else
    return to_float(value);
}

template <typename W>
W combined(W x, W y, ReduceOp op) {
  if (op == ReduceOp::prod) return x * y;
  if (op == ReduceOp::min) return std::min(x, y);
  if (op == ReduceOp::max) return std::max(x, y);
  return x + y;
}

// Of the ranks begin .. end-1.
template <typename T>
Wide<T> tree(Rank begin, Rank end, std::size_t i, ReduceOp op) {
  if (end - begin == 1) return widened(contribution<T>(begin, i, op));
  int left = 1;
  while (left * 2 < end - begin) left *= 2;
  return combined(tree<T>(begin, begin + left, i, op), tree<T>(begin + left, end, i, op), op);
}

template <typename T>
T expected(int ranks, std::size_t i, ReduceOp op) {
  Wide<T> value = tree<T>(0, ranks, i, op);
  if (op == ReduceOp::avg) value /= static_cast<Wide<T>>(ranks);
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return make<T>(static_cast<double>(value));
}

template <typename T>
bool same_bits(const T& x, const T& y) {
  return std::memcmp(&x, &y, sizeof(T)) == 0;
}

// Elements first .. first+count-1 of the reduction of `block` elements of every rank.
template <typename T>
::testing::AssertionResult right(const T* values, std::size_t first, std::size_t count, int ranks,
                                 ReduceOp op) {
  for (std::size_t i = 0; i < count; ++i)
    if (!same_bits(values[i], expected<T>(ranks, first + i, op)))
      return ::testing::AssertionFailure()
             << to_string(data_type_of<T>()) << " " << to_string(op) << ", element " << first + i;
  return ::testing::AssertionSuccess();
}

template <typename T>
std::vector<T> inputs(Rank rank, std::size_t count, ReduceOp op) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = contribution<T>(rank, i, op);
  return values;
}

// True for a call that is right; also for one that the forced algorithm cannot do in this order.
template <typename T>
bool call_is_right(const Status& status, const T* values, std::size_t first, std::size_t count,
                   int ranks, ReduceOp op, int& done) {
  if (status.code() == StatusCode::unsupported) {
    const bool says_why = status.message().find("reduce_order=rank_tree") != std::string::npos ||
                          status.message().find("serves powers of two") != std::string::npos ||
                          status.message().find("at least two nodes") != std::string::npos;
    EXPECT_TRUE(says_why) << status.message();
    return says_why;
  }
  EXPECT_TRUE(status.ok()) << status.to_string();
  const auto verdict = right(values, first, count, ranks, op);
  EXPECT_TRUE(verdict) << verdict.message();
  ++done;
  return status.ok() && verdict;
}

// Every reduction of one type and operation; `done` counts the calls that were not refused.
template <typename T>
bool reduces_along_the_tree(Communicator& comm, std::size_t count, ReduceOp op, int& done) {
  const int n = comm.size();
  const Rank me = comm.rank();
  const DataType type = data_type_of<T>();
  auto data = inputs<T>(me, count, op);
  Status status = comm.all_reduce(std::span<T>(data), op);
  if (!call_is_right(status, data.data(), 0, count, n, op, done)) return false;
  const auto all = inputs<T>(me, count * idx(n), op);
  std::vector<T> output(count + 1);
  status = comm.reduce_scatter(all.data(), output.data(), count, type, op);
  if (!call_is_right(status, output.data(), idx(me) * count, count, n, op, done)) return false;
  const Rank root = n / 2;
  status = comm.reduce(all.data(), output.data(), count, type, op, root);
  const std::size_t mine = me == root ? count : 0;
  if (!call_is_right(status, output.data(), 0, mine, n, op, done)) return false;
  std::vector<std::size_t> counts(idx(n), count);
  counts[0] = 0;
  status = comm.reduce_scatter_v(all.data(), output.data(), {counts}, type, op);
  return call_is_right(status, output.data(), me == 0 ? 0 : (idx(me) - 1) * count, counts[idx(me)],
                       n, op, done);
}

template <typename T>
bool every_operation(Communicator& comm, std::size_t count, int& done) {
  bool well = true;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min})
    well = well && reduces_along_the_tree<T>(comm, count, op, done);
  return well;
}

bool every_type(Communicator& comm, std::size_t count, int& done) {
  return every_operation<float>(comm, count, done) && every_operation<double>(comm, count, done) &&
         every_operation<float16>(comm, count, done) &&
         every_operation<bfloat16>(comm, count, done) &&
         every_operation<float8_e4m3>(comm, count, done) &&
         every_operation<float8_e5m2>(comm, count, done);
}

CommunicatorOptions ordered() {
  CommunicatorOptions options;
  options.reduce_order = "rank_tree";
  return options;
}

void on_ranks(int size, const CommunicatorOptions& options,
              const std::function<void(Communicator&)>& body) {
  auto communicators = Communicator::for_threads(size, options);
  ASSERT_TRUE(communicators.ok()) << communicators.status().to_string();
  std::vector<std::thread> threads;
  for (Communicator& communicator : *communicators)
    threads.emplace_back([&] { body(communicator); });
  for (std::thread& thread : threads) thread.join();
}

class RankTree : public ::testing::TestWithParam<int> {};

TEST_P(RankTree, BitsDoNotDependOnHowItIsDone) {
  for (const char* lowering : {"direct", "staged"})
    for (const int channels : {1, 3})
      for (const std::size_t slice : {std::size_t{0}, std::size_t{512}}) {
        CommunicatorOptions options = ordered();
        options.lowering = lowering;
        options.channels = channels;
        options.slice_bytes = slice;
        on_ranks(GetParam(), options, [](Communicator& comm) {
          int done = 0;
          for (const std::size_t count : {0U, 1U, 257U}) ASSERT_TRUE(every_type(comm, count, done));
          EXPECT_EQ(done, 3 * 6 * 4 * 4) << "every reduction of every type can be done";
        });
      }
}

TEST_P(RankTree, BitsDoNotDependOnTheAlgorithm) {
  for (const char* algorithm : {"direct", "ring", "tree", "doubling", "one_shot", "binomial",
                                "halving_doubling", "hierarchical"}) {
    CommunicatorOptions options = ordered();
    options.algorithm = algorithm;
    options.slice_bytes = 4096;
    on_ranks(GetParam(), options, [&](Communicator& comm) {
      for (const std::size_t count : {1U, 1009U}) {
        auto data = inputs<float>(comm.rank(), count, ReduceOp::sum);
        int done = 0;
        const Status status = comm.all_reduce(std::span<float>(data), ReduceOp::sum);
        ASSERT_TRUE(call_is_right(status, data.data(), 0, count, comm.size(), ReduceOp::sum, done));
        const std::string_view name = algorithm;
        const bool always = name == "direct" || name == "one_shot" || name == "binomial";
        if (always) {
          EXPECT_EQ(done, 1) << algorithm;
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankTree, ::testing::Range(1, 10));

TEST(RankTree, LargeCallsToo) {
  on_ranks(5, ordered(), [](Communicator& comm) {
    int done = 0;
    ASSERT_TRUE(reduces_along_the_tree<float>(comm, 300'007, ReduceOp::sum, done));
    ASSERT_TRUE(reduces_along_the_tree<bfloat16>(comm, 300'007, ReduceOp::avg, done));
    EXPECT_EQ(done, 8);
  });
}

TEST(RankTree, TheInputsTellOrdersApart) {
  int different = 0;
  for (std::size_t i = 0; i < 100; ++i) {
    float chain = contribution<float>(0, i, ReduceOp::sum);
    for (Rank rank = 1; rank < 5; ++rank) chain += contribution<float>(rank, i, ReduceOp::sum);
    different += same_bits(chain, expected<float>(5, i, ReduceOp::sum)) ? 0 : 1;
  }
  EXPECT_GT(different, 5);
}

// As training layouts do: shards within neighbours, then sums across them.
TEST(RankTree, GroupsOfNeighboursFirstGiveTheSameBits) {
  for (const int size : {4, 6, 8})
    for (const int group : {2, 4}) {
      if (size % group != 0) continue;
      on_ranks(size, ordered(), [&](Communicator& comm) {
        auto inside = comm.split(comm.rank() / group);
        auto across = comm.split(comm.rank() % group);
        ASSERT_TRUE(inside.ok() && across.ok());
        const std::size_t count = 5003;
        const auto input = inputs<float>(comm.rank(), count * idx(group), ReduceOp::sum);
        std::vector<float> shard(count);
        ASSERT_TRUE(inside
                        ->reduce_scatter(std::span<const float>(input), std::span<float>(shard),
                                         ReduceOp::sum)
                        .ok());
        ASSERT_TRUE(across->all_reduce(std::span<float>(shard), ReduceOp::sum).ok());
        const std::size_t first = idx(comm.rank() % group) * count;
        EXPECT_TRUE(right(shard.data(), first, count, size, ReduceOp::sum)) << size << " " << group;
      });
    }
}

TEST(RankTree, ProcessesOverEveryTransport) {
  for (const char* transport : {"shm", "tcp"})
    for (const int ranks : {3, 6}) {
      CommunicatorOptions options = ordered();
      options.transport = transport;
      EXPECT_TRUE(on_processes(ranks, options,
                               [](Communicator& comm) {
                                 int done = 0;
                                 return every_type(comm, 641, done) && done == 6 * 4 * 4 &&
                                        reduces_along_the_tree<float>(comm, 50'021, ReduceOp::sum,
                                                                      done);
                               }))
          << transport << " " << ranks;
    }
}

TEST(RankTree, ExplainSaysWhatItLeaves) {
  on_ranks(4, ordered(), [](Communicator& comm) {
    const auto report = comm.explain(Collective::all_reduce, 1 << 16, DataType::bfloat16);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->algorithm, "direct");
    EXPECT_NE(report->explanation.find("reduce_order=rank_tree leaves"), std::string::npos)
        << report->explanation;
    const auto whole = comm.explain(Collective::all_reduce, 1 << 16, DataType::int32);
    ASSERT_TRUE(whole.ok());
    EXPECT_EQ(whole->explanation.find("rank_tree"), std::string::npos)
        << "every order adds whole numbers alike";
  });
}

TEST(RankTree, AnUnknownOrderIsRefused) {
  CommunicatorOptions options;
  options.reduce_order = "rank-tree";
  const auto made = Communicator::for_threads(2, options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("any, rank_tree"), std::string::npos);
}

}  // namespace
}  // namespace tutti
