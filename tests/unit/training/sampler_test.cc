// sampler_test.cc: an epoch is every window once, in an order that looks random, is another in each
// epoch, and does not depend on who asks for which rows.
#include "training/data/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "training/modules/head.hpp"

namespace tutti::training {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Tokens = std::vector<std::int32_t>;
using Order = Sampler::Order;

std::vector<std::uint64_t> order_of(const Permutation& permutation, std::uint64_t size) {
  std::vector<std::uint64_t> order(size);
  for (std::uint64_t i = 0; i < size; ++i) order[i] = permutation(i);
  return order;
}

bool is_permutation_of_all(std::vector<std::uint64_t> order) {
  std::sort(order.begin(), order.end());
  for (std::uint64_t i = 0; i < order.size(); ++i)
    if (order[i] != i) return false;
  return true;
}

TEST(Permutation, HasEachIndexOnceForEverySize) {
  for (std::uint64_t size = 1; size <= 300; ++size)
    ASSERT_TRUE(is_permutation_of_all(order_of(Permutation(size, 7, size % 5), size))) << size;
  EXPECT_TRUE(is_permutation_of_all(order_of(Permutation(65537, 7, 0), 65537)));
}

TEST(Permutation, StaysInRangesNearTheLargest) {
  constexpr std::uint64_t kSize = (std::uint64_t{1} << 62) - 3;
  const Permutation permutation(kSize, 1, 1);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_LT(permutation(kSize - 1 - i), kSize);
}

// Where an index goes is spread evenly: Pearson's statistic over keys, for a range of an odd size.
TEST(Permutation, PutsEachIndexAnywhereAlike) {
  constexpr std::uint64_t kSize = 11, kKeys = 4400;
  for (const std::uint64_t index : {0u, 5u, 10u}) {
    std::vector<double> counts(kSize, 0);
    for (std::uint64_t key = 0; key < kKeys; ++key) ++counts[Permutation(kSize, key, 0)(index)];
    const double expected = double{kKeys} / kSize;
    double statistic = 0;
    for (const double count : counts)
      statistic += (count - expected) * (count - expected) / expected;
    EXPECT_LT(statistic, 29.6) << index;  // 10 degrees of freedom: exceeded once in 1000
  }
}

// Neighbours do not stay neighbours: the correlation of index and place, and of places of
// successive indices, is that of chance.
TEST(Permutation, KeepsNothingOfTheOrder) {
  constexpr std::uint64_t kSize = 5000;
  const auto order = order_of(Permutation(kSize, 3, 2), kSize);
  const double mean = (kSize - 1) / 2.0, variance = (double{kSize} * kSize - 1) / 12;
  double with_index = 0, with_next = 0;
  for (std::uint64_t i = 0; i < kSize; ++i) {
    const double here = static_cast<double>(order[i]) - mean;
    with_index += here * (static_cast<double>(i) - mean);
    with_next += here * (static_cast<double>(order[(i + 1) % kSize]) - mean);
  }
  const double bound = 4 / std::sqrt(double{kSize});  // four deviations
  EXPECT_LT(std::abs(with_index / (kSize * variance)), bound);
  EXPECT_LT(std::abs(with_next / (kSize * variance)), bound);
}

TEST(Permutation, KeysAndStreamsGiveOtherOrders) {
  const auto order = order_of(Permutation(1000, 1, 0), 1000);
  for (const auto& other :
       {order_of(Permutation(1000, 2, 0), 1000), order_of(Permutation(1000, 1, 1), 1000)}) {
    int same = 0;
    for (std::size_t i = 0; i < order.size(); ++i) same += order[i] == other[i];
    EXPECT_LT(same, 8);  // one in the mean
  }
}

// A corpus of `count` tokens of which token i is i, so that windows show where they are from.
class CountingCorpus : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tutti_sampler_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Corpus corpus_of(std::int32_t count) const {
    auto writer = TokenWriter::create(folder_ + "/t.bin", TokenFormat::llmc_llama3);
    Tokens tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), 0);
    EXPECT_TRUE(writer->append(tokens).ok());
    EXPECT_TRUE(writer->finish().ok());
    return *Corpus::open(std::vector<std::string>{folder_ + "/t.bin"});
  }

  std::string folder_;
};

using SamplerOverCorpus = CountingCorpus;

Sampler sampler_of(const Corpus& corpus, TokenRange range, std::int64_t sequence, Order order,
                   std::uint64_t seed = 0) {
  auto sampler = Sampler::make(corpus, range, sequence, order, seed);
  EXPECT_TRUE(sampler.ok()) << sampler.status().to_string();
  return *sampler;
}

TEST_F(SamplerOverCorpus, TargetsAreTheTokensThatFollow) {
  const Corpus corpus = corpus_of(1000);
  const Sampler sampler = sampler_of(corpus, {100, 900}, 8, Order::shuffled);
  Tokens tokens(24), targets(24);
  EXPECT_EQ(sampler.fill(5, 3, tokens, targets), 24);
  EXPECT_EQ(sampler.count_targets(5, 3), 24);
  for (std::size_t i = 0; i < 24; ++i) {
    const auto row = static_cast<std::int64_t>(5 + i / 8);
    EXPECT_EQ(tokens[i], 100 + sampler.window(row) * 8 + static_cast<std::int64_t>(i % 8));
    EXPECT_EQ(targets[i], tokens[i] + 1);
  }
}

TEST_F(SamplerOverCorpus, RanksTogetherReadEachWindowOnceAnEpoch) {
  const Corpus corpus = corpus_of(4001);
  const Sampler sampler = sampler_of(corpus, {0, 4001}, 16, Order::shuffled, 5);
  ASSERT_EQ(sampler.windows(), 250);
  for (const std::int64_t ranks : {1, 3, 7, 50}) {
    std::vector<int> seen(4001, 0);
    Tokens tokens(16), targets(16);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      for (std::int64_t row = rank; row < sampler.windows(); row += ranks) {
        sampler.fill(sampler.windows() + row, 1, tokens, targets);  // of the second epoch
        for (const std::int32_t target : targets) ++seen[static_cast<std::size_t>(target)];
      }
    }
    EXPECT_EQ(seen[0], 0);
    seen.erase(seen.begin());
    EXPECT_THAT(seen, Each(1)) << ranks;
  }
}

TEST_F(SamplerOverCorpus, ARowIsTheSameHoweverTheBatchIsSplit) {
  const Corpus corpus = corpus_of(2000);
  const Sampler sampler = sampler_of(corpus, {0, 2000}, 4, Order::shuffled, 9);
  Tokens whole(32), targets(32);
  sampler.fill(1234, 8, whole, targets);
  for (const std::int64_t rows : {1, 2, 4}) {
    Tokens joined;
    for (std::int64_t row = 0; row < 8; row += rows) {
      Tokens part(static_cast<std::size_t>(rows * 4)), part_targets(part.size());
      sampler.fill(1234 + row, rows, part, part_targets);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole);
  }
}

TEST_F(SamplerOverCorpus, EpochsAndSeedsDiffer) {
  const Corpus corpus = corpus_of(1001);
  const Sampler sampler = sampler_of(corpus, {0, 1001}, 10, Order::shuffled, 1);
  const Sampler other = sampler_of(corpus, {0, 1001}, 10, Order::shuffled, 2);
  int epochs_agree = 0, seeds_agree = 0;
  for (std::int64_t row = 0; row < 100; ++row) {
    epochs_agree += sampler.window(row) == sampler.window(row + 100);
    seeds_agree += sampler.window(row) == other.window(row);
    EXPECT_EQ(sampler.epoch(row), 0);
    EXPECT_EQ(sampler.epoch(row + 100), 1);
  }
  EXPECT_LT(epochs_agree, 8);
  EXPECT_LT(seeds_agree, 8);
}

// The order is part of what a checkpoint's integer means: it must stay the same between versions.
TEST_F(SamplerOverCorpus, TheOrderOfASeedIsFixed) {
  const Corpus corpus = corpus_of(1001);
  const Sampler sampler = sampler_of(corpus, {0, 1001}, 10, Order::shuffled, 1);
  std::vector<std::int64_t> windows;
  for (std::int64_t row = 0; row < 8; ++row) windows.push_back(sampler.window(row));
  EXPECT_THAT(windows, ElementsAre(83, 51, 25, 30, 82, 24, 73, 63));
}

TEST_F(SamplerOverCorpus, InOrderTheLastWindowIsPadded) {
  const Corpus corpus = corpus_of(100);
  const Sampler sampler = sampler_of(corpus, {90, 100}, 4, Order::in_order);
  ASSERT_EQ(sampler.windows(), 3);
  Tokens tokens(16), targets(16);
  EXPECT_EQ(sampler.fill(0, 4, tokens, targets), 9);
  EXPECT_EQ(sampler.count_targets(0, 4), 9);
  EXPECT_EQ(sampler.count_targets(2, 1), 1);
  EXPECT_EQ(sampler.count_targets(3, 1000), 0);
  EXPECT_THAT(tokens, ElementsAre(90, 91, 92, 93, 94, 95, 96, 97, 98, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(targets, ElementsAre(91, 92, 93, 94, 95, 96, 97, 98, 99, kIgnored, kIgnored, kIgnored,
                                   kIgnored, kIgnored, kIgnored, kIgnored));
}

TEST_F(SamplerOverCorpus, ARangeThatIsTooShortIsRefused) {
  const Corpus corpus = corpus_of(100);
  EXPECT_TRUE(Sampler::make(corpus, {0, 9}, 8, Order::shuffled).ok());
  const auto sampler = Sampler::make(corpus, {0, 8}, 8, Order::shuffled);
  EXPECT_EQ(sampler.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(sampler.status().message(), HasSubstr("the 8 tokens"));
  EXPECT_FALSE(Sampler::make(corpus, {50, 51}, 8, Order::in_order).ok());
  EXPECT_FALSE(Sampler::make(corpus, {0, 100}, 0, Order::shuffled).ok());
}

}  // namespace
}  // namespace tutti::training
