// That gradients are added along the tree that ranks add along, in little memory.
#include "training/optim/gradient_tree.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

namespace tutti::training {
namespace {

constexpr std::int64_t kCount = 37;

std::vector<float> gradient_of(int micro_batch) {
  std::mt19937 random(static_cast<unsigned>(micro_batch) + 1);
  std::vector<float> made(kCount);
  for (float& value : made) value = static_cast<float>(random()) * 0x1p-20f - 2000.0f;
  return made;
}

std::vector<float> added(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// The definition: [begin, begin + count) is the largest power of two below count, and the rest.
std::vector<float> tree_sum(int begin, int count) {
  if (count == 1) return gradient_of(begin);
  int left = 1;
  while (2 * left < count) left *= 2;
  return added(tree_sum(begin, left), tree_sum(begin + left, count - left));
}

std::vector<float> with_tree(Arena& arena, int begin, int count) {
  GradientTree tree(arena, DataType::float32, Shape{kCount});
  for (int i = begin; i < begin + count; ++i) {
    const Tensor gradient = tree.next();
    const auto values = gradient_of(i);
    for (std::size_t j = 0; j < values.size(); ++j) gradient.as<float>()[j] += values[j];
    tree.push(gradient);
  }
  const Tensor sum = tree.finish(count);
  const auto span = sum.span<float>();
  return {span.begin(), span.end()};
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> made;
  for (const float value : values) made.push_back(std::bit_cast<std::uint32_t>(value));
  return made;
}

TEST(GradientTree, AddsAlongTheBalancedTree) {
  Arena arena;
  for (int count = 1; count <= 17; ++count)
    EXPECT_EQ(bits(with_tree(arena, 0, count)), bits(tree_sum(0, count))) << count;
}

TEST(GradientTree, IsNotTheSumInOrder) {  // else the other tests would show nothing
  Arena arena;
  std::vector<float> in_order = gradient_of(0);
  for (int i = 1; i < 16; ++i) in_order = added(in_order, gradient_of(i));
  EXPECT_NE(bits(with_tree(arena, 0, 16)), bits(in_order));
}

TEST(GradientTree, GroupsThatRanksAddGiveTheSameBits) {
  Arena arena;
  for (const int total : {8, 16, 32})
    for (const int groups : {2, 4, 8}) {
      const int each = total / groups;
      std::vector<std::vector<float>> sums;
      for (int g = 0; g < groups; ++g) sums.push_back(with_tree(arena, g * each, each));
      for (std::size_t width = 1; width < sums.size(); width *= 2)  // as rank_tree adds over ranks
        for (std::size_t g = 0; g + width < sums.size(); g += 2 * width)
          sums[g] = added(sums[g], sums[g + width]);
      EXPECT_EQ(bits(sums[0]), bits(with_tree(arena, 0, total))) << total << " in " << groups;
    }
}

TEST(GradientTree, OneMicroBatchTakesOneTensorAndNoCopy) {
  Arena arena;
  GradientTree tree(arena, DataType::float32, Shape{kCount});
  Tensor gradient = tree.next();
  const std::byte* const memory = gradient.data();
  tree.push(std::move(gradient));
  const Tensor sum = tree.finish(1);
  EXPECT_EQ(sum.data(), memory);
  EXPECT_EQ(arena.peak(MemoryKind::gradient), kCount * sizeof(float));
}

TEST(GradientTree, HoldsNoMoreTensorsThanABinaryCounterHasDigits) {
  for (int count = 1; count <= 64; ++count) {
    Arena arena;
    with_tree(arena, 0, count);
    const auto most = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(count)));
    EXPECT_LE(arena.peak(MemoryKind::gradient), most * kCount * sizeof(float)) << count;
    EXPECT_EQ(arena.bytes(MemoryKind::gradient), 0u);
  }
}

TEST(GradientTree, NextIsZeroThoughItsMemoryWasUsed) {
  Arena arena;
  GradientTree tree(arena, DataType::float64, Shape{3, 5});
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 4; ++i) {
      const Tensor gradient = tree.next();
      for (double& value : gradient.span<double>()) {
        EXPECT_EQ(std::bit_cast<std::uint64_t>(value), 0u);
        value = i + 1;
      }
      tree.push(gradient);
    }
    EXPECT_EQ(tree.pushed(), 4);
    const Tensor sum = tree.finish(4);
    EXPECT_EQ(sum.shape(), (Shape{3, 5}));
    for (const double value : sum.span<double>()) EXPECT_EQ(value, 10);
  }
}

}  // namespace
}  // namespace tutti::training
