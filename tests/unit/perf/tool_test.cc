// Each tool's shape and expectation, against a plain telling of what its collective does: buffers
// filled as a run fills them, moved and combined here by hand, must compare right, in place too.
#include "perf/common/tool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tutti::perf {
namespace {

using Elements = std::vector<std::int64_t>;

// What the collective makes of all ranks' inputs, for rank `rank`; int64 and sum.
Elements plain(Collective collective, const std::vector<Elements>& inputs, Rank rank, Rank root) {
  const std::size_t ranks = inputs.size(), own = static_cast<std::size_t>(rank);
  const std::size_t length = inputs[0].size(), each = length / ranks;
  Elements sum(length, 0), result;
  for (const Elements& input : inputs)
    for (std::size_t i = 0; i < length; ++i)  // wraps around, as the library's sums do
      sum[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum[i]) +
                                         static_cast<std::uint64_t>(input[i]));
  const auto append = [&](const Elements& from, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) result.push_back(from[i]);
  };
  switch (collective) {
    case Collective::all_reduce:
      return sum;
    case Collective::reduce:
      return rank == root ? sum : Elements(length, 0);
    case Collective::broadcast:
      return inputs[static_cast<std::size_t>(root)];
    case Collective::send_recv:
      return inputs[(own + ranks - 1) % ranks];
    case Collective::reduce_scatter:
      append(sum, own * each, each);
      break;
    case Collective::all_gather:
      for (const Elements& input : inputs) append(input, 0, length);
      break;
    case Collective::gather:
      if (rank != root) return Elements(length * ranks, 0);
      for (const Elements& input : inputs) append(input, 0, length);
      break;
    case Collective::scatter:
      append(inputs[static_cast<std::size_t>(root)], own * each, each);
      break;
    case Collective::all_to_all:
      for (const Elements& input : inputs) append(input, own * each, each);
      break;
    case Collective::barrier:
      break;
  }
  return result;
}

// Of blocks that differ in size: rank a sends the rank k places further on (k + 1) n-ths of `full`.
Elements plain_varied(const std::vector<Elements>& inputs, Rank rank, std::size_t full) {
  const std::size_t ranks = inputs.size(), own = static_cast<std::size_t>(rank);
  Elements result;
  for (std::size_t from = 0; from < ranks; ++from) {
    std::size_t first = 0, length = 0;
    for (std::size_t to = 0; to <= own; ++to) {
      first += length;
      length = full / ranks * ((to + ranks - from) % ranks + 1);
    }
    const auto begin = inputs[from].begin() + static_cast<std::ptrdiff_t>(first);
    result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(length));
  }
  return result;
}

std::size_t count_wrong(const Tool& tool, const Shape& shape, const Pattern& pattern,
                        const Elements& output, Rank rank, int ranks, Rank root) {
  std::size_t wrong = 0, offset = 0;
  for (const Piece& piece : tool.expected(shape, rank, ranks, root)) {
    wrong += pattern.compare(output.data() + offset, piece.source, piece.first, piece.count).count;
    offset += piece.count;
  }
  return wrong;
}

class ToolTest : public ::testing::TestWithParam<const Tool*> {};

TEST_P(ToolTest, ExpectsWhatTheCollectiveDoes) {
  const Tool& tool = *GetParam();
  for (const int ranks : {1, 2, 3, 5}) {
    const Shape shape = tool.shape(100, sizeof(std::int64_t), ranks);
    const auto pattern = is_reduction(tool.collective)
                             ? Pattern::reduced(DataType::int64, ReduceOp::sum, ranks, 1)
                             : Pattern::moved(DataType::int64, 1);
    std::vector<Elements> inputs(static_cast<std::size_t>(ranks), Elements(shape.input));
    for (Rank rank = 0; rank < ranks; ++rank)
      pattern.fill(inputs[static_cast<std::size_t>(rank)].data(), rank, 0, shape.input);
    const Rank root = ranks - 1;
    for (Rank rank = 0; rank < ranks; ++rank) {
      Elements output = &tool == &alltoallv_tool() ? plain_varied(inputs, rank, shape.count)
                                                   : plain(tool.collective, inputs, rank, root);
      ASSERT_EQ(output.size(), shape.output);
      EXPECT_EQ(count_wrong(tool, shape, pattern, output, rank, ranks, root), 0u);
      output.back() ^= 1;
      const bool only_root =
          tool.collective == Collective::reduce || tool.collective == Collective::gather;
      const bool defined = !only_root || rank == root;
      EXPECT_EQ(count_wrong(tool, shape, pattern, output, rank, ranks, root), defined ? 1u : 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tools, ToolTest, ::testing::ValuesIn(tools()),
                         [](const auto& of) { return std::string(of.param->name); });

TEST(Tools, InPlaceBuffersStayWithinTheMessage) {
  constexpr int ranks = 3;
  for (const Tool* tool : tools()) {
    const Shape shape = tool->shape(100, 4, ranks);
    const std::size_t whole = std::max(shape.input, shape.output);
    EXPECT_LE(whole, 100u) << tool->name;
    if (!tool->in_place) continue;
    EXPECT_LE((ranks - 1) * shape.input_stride + shape.input, whole) << tool->name;
    EXPECT_LE((ranks - 1) * shape.output_stride + shape.output, whole) << tool->name;
  }
}

TEST(Tools, BusBandwidthFactorsAreThoseOfNcclTests) {
  std::vector<double> factors;
  for (const Tool* tool : tools()) factors.push_back(tool->busbw_factor(4));
  EXPECT_THAT(factors, ::testing::ElementsAre(1.5, 0.75, 0.75, 1, 1, 0.75, 0.75, 0.75, 0.75, 1, 1));
}

TEST(Tools, HypercubesNeedAPowerOfTwo) {
  for (const int ranks : {1, 2, 4, 8}) EXPECT_TRUE(hypercube_tool().serves(ranks).ok());
  for (const int ranks : {3, 6, 9}) {
    const Status status = hypercube_tool().serves(ranks);
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_THAT(status.message(), ::testing::HasSubstr("use all_gather_perf"));
  }
}

// 100 floats among 3 ranks: 33 each, of which 32 are whole lines of 16 bytes.
TEST(Tools, BlocksAreWholeLines) {
  EXPECT_EQ(all_gather_tool().shape(100, 4, 3).output, 96u);
  EXPECT_EQ(all_gather_tool().shape(100, 4, 3).count, 32u);
  EXPECT_EQ(reduce_scatter_tool().shape(100, 4, 3).input, 96u);
  EXPECT_EQ(alltoall_tool().shape(100, 8, 3).count, 32u);
  EXPECT_EQ(alltoall_tool().shape(100, 2, 3).count, 32u);
  EXPECT_EQ(all_gather_tool().shape(2, 4, 3).count, 0u);
  EXPECT_EQ(all_reduce_tool().shape(99, 4, 3).count, 99u);
}

}  // namespace
}  // namespace tutti::perf
