// Calls of blocks that differ in size, and groups: 1 to 9 ranks, empty blocks, packed and not, in
// place and not, slices much smaller than blocks, several calls on one communicator.
#include "runtime/varied.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "tutti/communicator.hpp"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

CommunicatorOptions small_slices() {
  CommunicatorOptions options;
  options.slice_bytes = 1024;
  options.timeout = std::chrono::seconds(20);
  return options;
}

void on_ranks(int size, const std::function<void(Communicator&)>& body,
              const CommunicatorOptions& options = small_slices()) {
  auto communicators = Communicator::for_threads(size, options);
  ASSERT_TRUE(communicators.ok()) << communicators.status().to_string();
  std::vector<std::thread> threads;
  for (Communicator& communicator : *communicators)
    threads.emplace_back([&] { body(communicator); });
  for (std::thread& thread : threads) thread.join();
}

// Some empty, some of one element, some of many slices.
std::size_t count_of(int rank, std::size_t scale) {
  const std::size_t counts[] = {7, 0, 1, 3, 11, 2};
  return counts[idx(rank) % 6] * scale;
}

std::int64_t value_of(Rank from, Rank to, std::size_t i) {
  return static_cast<std::int64_t>(i) * 31 + from * 1009 + to * 17 + 1;
}

struct Layout {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements;
  std::size_t end = 0;

  // With gaps, and the last block first.
  void spread() {
    displacements.resize(counts.size());
    end = 0;
    for (std::size_t p = counts.size(); p-- > 0;) {
      displacements[p] = end;
      end += counts[p] + 3;
    }
  }
  void pack() {
    displacements.clear();
    end = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  }
  std::size_t begin(std::size_t p) const {
    if (!displacements.empty()) return displacements[p];
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(p),
                           std::size_t{0});
  }
  BlockLayout layout() const { return {counts, displacements}; }
};

constexpr std::int64_t kUntouched = -5;

// Everything outside the blocks must be as it was.
void expect_only_blocks(const std::vector<std::int64_t>& data, const Layout& layout) {
  std::vector<bool> inside(data.size(), false);
  for (std::size_t p = 0; p < layout.counts.size(); ++p)
    for (std::size_t i = 0; i < layout.counts[p]; ++i) inside[layout.begin(p) + i] = true;
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (inside[i]) continue;
    ASSERT_EQ(data[i], kUntouched) << i;
  }
}

void check_all_gather_v(Communicator& comm, const Layout& layout, bool in_place) {
  const Rank me = comm.rank();
  std::vector<std::int64_t> input(layout.counts[idx(me)]);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = value_of(me, 0, i);
  std::vector<std::int64_t> output(layout.end + 1, kUntouched);
  const std::int64_t* from = input.data();
  if (in_place) {
    from = output.data() + layout.begin(idx(me));
    std::copy(input.begin(), input.end(),
              output.begin() + static_cast<std::ptrdiff_t>(layout.begin(idx(me))));
  }
  const Status status = comm.all_gather_v(from, output.data(), layout.layout(), DataType::int64);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (Rank p = 0; p < comm.size(); ++p)
    for (std::size_t i = 0; i < layout.counts[idx(p)]; ++i)
      ASSERT_EQ(output[layout.begin(idx(p)) + i], value_of(p, 0, i)) << p << " " << i;
  expect_only_blocks(output, layout);
}

void check_reduce_scatter_v(Communicator& comm, const Layout& layout, bool in_place) {
  const Rank me = comm.rank();
  std::vector<std::int64_t> input(layout.end + 1, kUntouched);
  for (std::size_t p = 0; p < layout.counts.size(); ++p)
    for (std::size_t i = 0; i < layout.counts[p]; ++i)
      input[layout.begin(p) + i] = value_of(me, static_cast<Rank>(p), i);
  std::vector<std::int64_t> separate(layout.counts[idx(me)] + 1, kUntouched);
  std::int64_t* output = in_place ? input.data() + layout.begin(idx(me)) : separate.data();
  const Status status =
      comm.reduce_scatter_v(input.data(), output, layout.layout(), DataType::int64, ReduceOp::sum);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (std::size_t i = 0; i < layout.counts[idx(me)]; ++i) {
    std::int64_t wanted = 0;
    for (Rank p = 0; p < comm.size(); ++p) wanted += value_of(p, me, i);
    ASSERT_EQ(output[i], wanted) << i;
  }
  EXPECT_EQ(separate.back(), kUntouched);
}

// Rank a sends b count_of(a + 2 * b) elements.
void check_all_to_all_v(Communicator& comm, std::size_t scale, bool spread) {
  const Rank me = comm.rank();
  Layout sent;
  Layout received;
  for (Rank p = 0; p < comm.size(); ++p) {
    sent.counts.push_back(count_of(me + 2 * p, scale));
    received.counts.push_back(count_of(p + 2 * me, scale));
  }
  sent.pack();
  spread ? received.spread() : received.pack();
  std::vector<std::int64_t> input(sent.end + 1);
  for (Rank p = 0; p < comm.size(); ++p)
    for (std::size_t i = 0; i < sent.counts[idx(p)]; ++i)
      input[sent.begin(idx(p)) + i] = value_of(me, p, i);
  std::vector<std::int64_t> output(received.end + 1, kUntouched);
  const Status status = comm.all_to_all_v(input.data(), sent.layout(), output.data(),
                                          received.layout(), DataType::int64);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (Rank p = 0; p < comm.size(); ++p)
    for (std::size_t i = 0; i < received.counts[idx(p)]; ++i)
      ASSERT_EQ(output[received.begin(idx(p)) + i], value_of(p, me, i)) << p << " " << i;
  expect_only_blocks(output, received);
}

class Varied : public ::testing::TestWithParam<int> {};

TEST_P(Varied, BlocksOfAllSizes) {
  on_ranks(GetParam(), [](Communicator& comm) {
    for (const std::size_t scale : {std::size_t{0}, std::size_t{1}, std::size_t{307}}) {
      Layout layout;
      for (Rank p = 0; p < comm.size(); ++p) layout.counts.push_back(count_of(p, scale));
      for (const bool in_place : {false, true}) {
        layout.pack();
        check_all_gather_v(comm, layout, in_place);
        check_reduce_scatter_v(comm, layout, in_place);
        layout.spread();
        check_all_gather_v(comm, layout, in_place);
        check_reduce_scatter_v(comm, layout, in_place);
        check_all_to_all_v(comm, scale, in_place);
      }
      // Calls of other kinds on the same connections.
      std::vector<std::int64_t> ones(2000, 1);
      ASSERT_TRUE(comm.all_reduce(std::span<std::int64_t>(ones), ReduceOp::sum).ok());
      ASSERT_EQ(ones.back(), comm.size());
    }
  });
}

// Every rank sends every rank, itself too, two messages, in an order of its own.
TEST_P(Varied, GroupsTakePeersInAnyOrder) {
  on_ranks(GetParam(), [](Communicator& comm) {
    const int n = comm.size();
    const Rank me = comm.rank();
    for (int round = 0; round < 3; ++round) {
      const std::size_t sizes[] = {300, static_cast<std::size_t>(round)};
      std::vector<std::vector<std::int64_t>> inputs;
      std::vector<std::vector<std::int64_t>> outputs;
      inputs.reserve(idx(2 * n));
      outputs.reserve(idx(2 * n));
      ASSERT_TRUE(comm.group_begin().ok());
      for (int k = 0; k < n; ++k) {
        const Rank to = (me * 3 + k) % n;
        const Rank from = (n - 1 - k + me) % n;
        for (const std::size_t size : sizes) {
          auto& out = outputs.emplace_back(size, kUntouched);
          ASSERT_TRUE(comm.recv(out.data(), size, DataType::int64, from).ok());
          auto& in = inputs.emplace_back(size);
          for (std::size_t i = 0; i < size; ++i) in[i] = value_of(me, to, i + size);
          ASSERT_TRUE(comm.send(in.data(), size, DataType::int64, to).ok());
        }
      }
      std::vector<std::int32_t> total(3, 1);
      ASSERT_TRUE(comm.all_reduce(std::span<std::int32_t>(total), ReduceOp::sum).ok());
      ASSERT_EQ(total[0], 1) << "kept, not made";
      const Status status = comm.group_end();
      ASSERT_TRUE(status.ok()) << status.to_string();
      ASSERT_EQ(total[0], n);
      for (int k = 0; k < n; ++k) {
        const Rank from = (n - 1 - k + me) % n;
        for (std::size_t m = 0; m < 2; ++m)
          for (std::size_t i = 0; i < sizes[m]; ++i)
            ASSERT_EQ(outputs[idx(2 * k) + m][i], value_of(from, me, i + sizes[m])) << k << i;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Varied, ::testing::Range(1, 10));

TEST(VariedCalls, ForcedAlgorithmsServeOrSayWhyNot) {
  for (const char* algorithm : {"ring", "direct", "bruck"}) {
    CommunicatorOptions options = small_slices();
    options.algorithm = algorithm;
    on_ranks(
        4,
        [](Communicator& comm) {
          Layout layout;
          for (Rank p = 0; p < 4; ++p) layout.counts.push_back(count_of(p, 100));
          layout.pack();
          check_all_gather_v(comm, layout, false);
        },
        options);
  }
  CommunicatorOptions options = small_slices();
  options.algorithm = "bruck";
  on_ranks(
      4,
      [](Communicator& comm) {
        const std::vector<std::size_t> counts(4, 1);
        std::vector<float> data(8);
        const Status status =
            comm.all_to_all_v(data.data(), {counts}, data.data() + 4, {counts}, DataType::float32);
        EXPECT_EQ(status.code(), StatusCode::unsupported);
        EXPECT_THAT(status.to_string(), HasSubstr("blocks of equal size"));
      },
      options);
}

TEST(VariedCalls, WhatMakesNoSenseIsRefused) {
  on_ranks(1, [](Communicator& comm) {
    std::vector<float> data(8);
    const std::vector<std::size_t> one = {2};
    const std::vector<std::size_t> two = {2, 2};
    const std::vector<std::size_t> huge = {std::size_t{1} << 62};
    const auto refused = [&](const Status& status, const char* why) {
      EXPECT_EQ(status.code(), StatusCode::invalid_argument);
      EXPECT_THAT(status.to_string(), HasSubstr(why));
    };
    const auto f32 = DataType::float32;
    refused(comm.all_gather_v(data.data(), data.data(), {two}, f32), "2 counts");
    refused(comm.all_gather_v(data.data(), data.data(), {one, two}, f32), "2 displacements");
    refused(comm.all_gather_v(data.data(), nullptr, {one}, f32), "output is null");
    refused(comm.all_gather_v(nullptr, data.data(), {one}, f32), "input is null");
    refused(comm.all_gather_v(data.data(), data.data(), {huge}, f32), "more than memory can hold");
    refused(comm.all_gather_v(data.data() + 1, data.data(), {one}, f32), "overlap");
    refused(comm.all_to_all_v(data.data(), {one}, data.data() + 1, {one}, f32), "overlap");
    const std::vector<std::size_t> three = {3};
    refused(comm.all_to_all_v(data.data(), {one}, data.data() + 4, {three}, f32), "itself");
    refused(comm.group_end(), "without group_begin()");
    ASSERT_TRUE(comm.group_begin().ok());
    ASSERT_TRUE(comm.group_begin().ok());
    ASSERT_TRUE(comm.send(data.data(), 3, f32, 0).ok());
    EXPECT_FALSE(comm.barrier_async().ok());
    EXPECT_TRUE(comm.group_end().ok()) << "the inner end does nothing";
    refused(comm.group_end(), "sends itself 1 messages");
    EXPECT_TRUE(comm.barrier().ok()) << "a refused group leaves nothing behind";
  });
}

TEST(VariedCalls, BlocksOfTheOutputMayNotOverlap) {
  const std::vector<std::size_t> counts = {4, 0, 4};
  const std::vector<std::size_t> displacements = {0, 2, 3};
  std::vector<std::byte> memory(64);
  const BlockLayout layout{counts, displacements};
  EXPECT_TRUE(runtime::layout_blocks(memory.data(), layout, 3, DataType::int8, false).ok());
  const auto written = runtime::layout_blocks(memory.data(), layout, 3, DataType::int8, true);
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.status().to_string(), HasSubstr("overlap"));
}

// What one rank sends is not what the other expects: both hear of it, at once or by the next call.
TEST(VariedCalls, LengthsThatDoNotGoTogetherAreAnError) {
  for (const std::size_t difference : {std::size_t{1}, std::size_t{128}, std::size_t{500}}) {
    on_ranks(2, [&](Communicator& comm) {
      const std::size_t longer = 500 + difference;
      const bool first = comm.rank() == 0;
      std::vector<std::int64_t> input(2 * longer);
      std::vector<std::int64_t> output(2 * longer);
      const std::vector<std::size_t> sent = {0, first ? longer : 0};
      const std::vector<std::size_t> received = {first ? 0UL : 500UL, 0};
      Status status =
          comm.all_to_all_v(input.data(), {sent}, output.data(), {received}, DataType::int64);
      if (status.ok()) status = comm.barrier();
      if (status.ok()) status = comm.barrier();
      EXPECT_FALSE(status.ok()) << "rank " << comm.rank() << " difference " << difference;
    });
  }
}

}  // namespace
}  // namespace tutti
