// head_test.cc: the loss and its gradients: by the formula, against differences, on several ranks
// whose parts of the vocabulary differ, and where logits are extreme.
#include "training/modules/head.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "training/modules/embedding.hpp"
#include "unit/training/gradient_check.hpp"
#include "unit/training/parallel_outcome.hpp"

namespace tutti::training {
namespace {

using test::Layout;
using test::OneRank;
using test::Outcome;

constexpr std::int64_t kHidden = 12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ModelConfig config(std::int64_t vocabulary, Architecture architecture = Architecture::llama) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocabulary = vocabulary;
  config.hidden = kHidden;
  config.norm_epsilon = 1e-9;
  return config;
}

// Some targets of `rows`, every fifth one ignored.
std::vector<std::int32_t> some_targets(std::int64_t rows, std::int64_t vocabulary) {
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < rows; ++r)
    targets.push_back(r % 5 == 3 ? kIgnored : static_cast<std::int32_t>(r * 7 % vocabulary));
  return targets;
}

// The loss by its definition.
Loss loss_of(const Tensor& logits, const std::vector<std::int32_t>& targets) {
  Loss loss;
  const std::int64_t columns = logits.columns();
  for (std::size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] == kIgnored) continue;
    const std::int64_t row = static_cast<std::int64_t>(r) * columns;
    double largest = -kInfinity, sum = 0;
    for (std::int64_t i = 0; i < columns; ++i)
      largest = std::max(largest, test::element(logits, row + i));
    for (std::int64_t i = 0; i < columns; ++i)
      sum += std::exp(test::element(logits, row + i) - largest);
    loss.sum += std::log(sum) + largest - test::element(logits, row + targets[r]);
    ++loss.count;
  }
  return loss;
}

TEST(Head, LossIsTheCrossEntropyOfItsLogits) {
  // More rows than are computed at a time, and of the second size more columns.
  for (const std::int64_t vocabulary : {29, 20011}) {
    OneRank rank(DataType::float64, 1, 301);
    Head head(config(vocabulary), rank.context);
    rank.own(head);
    const Tensor x = rank.normal({301, kHidden}, "x");
    const std::vector<std::int32_t> targets = some_targets(301, vocabulary);
    Kept kept;
    const Loss loss = head.forward(x, targets, kept);
    const Loss expected = loss_of(head.logits(x), targets);
    EXPECT_EQ(loss.count, expected.count);
    EXPECT_NEAR(loss.sum, expected.sum, 1e-13 * expected.sum);
  }
}

TEST(Head, LogitsAreNormTimesWeight) {
  OneRank rank(DataType::float64, 1, 3);
  Head head(config(5), rank.context);
  rank.own(head);
  std::vector<Tensor> values;
  head.visit([&](Parameter& p) { values.push_back(p.value); });
  const Tensor x = rank.normal({3, kHidden}, "x");
  const Tensor logits = head.logits(x);
  ASSERT_EQ(logits.shape(), (Shape{3, 5}));
  for (std::int64_t r = 0; r < 3; ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < kHidden; ++i)
      squares += std::pow(test::element(x, r * kHidden + i), 2);
    for (std::int64_t v = 0; v < 5; ++v) {
      double sum = 0;
      for (std::int64_t i = 0; i < kHidden; ++i)
        sum += test::element(x, r * kHidden + i) / std::sqrt(squares / kHidden + 1e-9) *
               test::element(values[0], i) * test::element(values[1], v * kHidden + i);
      EXPECT_NEAR(test::element(logits, r * 5 + v), sum, 1e-13);
    }
  }
}

TEST(HeadGradients, OfInputAndParameters) {
  for (const Architecture architecture : {Architecture::llama, Architecture::gpt2}) {
    constexpr double kScale = 0.37;
    OneRank rank(DataType::float64, 2, 5);
    Head head(config(17, architecture), rank.context);
    rank.own(head);
    const Tensor x = rank.normal({10, kHidden}, "x");
    const std::vector<std::int32_t> targets = some_targets(10, 17);
    const auto functional = [&] {
      Kept kept;
      return kScale * head.forward(x, targets, kept).sum;
    };
    Kept kept;
    head.forward(x, targets, kept);
    const Tensor dx = head.backward_input(kScale, kept);
    head.backward_weight(kept);
    EXPECT_TRUE(kept.empty());
    EXPECT_LE(test::gradient_error(functional, x, dx), 1e-7);
    head.visit([&](Parameter& p) {
      EXPECT_LE(test::gradient_error(functional, p.value, p.gradient), 1e-7) << p.name;
    });
    for (const std::int64_t ignored : {3, 8})
      for (std::int64_t i = 0; i < kHidden; ++i)
        EXPECT_EQ(test::element(dx, ignored * kHidden + i), 0);
  }
}

TEST(HeadGradients, AreNothingWhereAllIsIgnored) {
  OneRank rank(DataType::float32, 1, 4);
  Head head(config(17), rank.context);
  rank.own(head);
  Kept kept;
  const Loss loss =
      head.forward(rank.normal({4, kHidden}, "x"), std::vector<std::int32_t>(4, kIgnored), kept);
  EXPECT_EQ(loss.sum, 0);
  EXPECT_EQ(loss.count, 0);
  EXPECT_EQ(test::elements(head.backward_input(1, kept)), std::vector<double>(4 * kHidden, 0));
  head.backward_weight(kept);
  head.visit([&](Parameter& p) {
    for (const double g : test::elements(p.gradient)) EXPECT_EQ(g, 0) << p.name;
  });
}

// A tied head computes with the embedding's values, and has gradients of its own.
TEST(HeadTied, ComputesWithTheOtherValue) {
  OneRank rank(DataType::float64, 1, 6);
  const std::vector<std::int32_t> targets = some_targets(6, 17);
  const auto run = [&](bool tied) {
    Embedding embedding(config(17), rank.context);
    Head head(config(17), rank.context);
    rank.own(embedding);
    rank.own(head);
    if (tied) {
      std::copy_n(head.weight().value.as<double>(), head.weight().count(),
                  embedding.weight().value.as<double>());
      head.weight().tied_to = &embedding.weight();
      head.weight().value = Tensor();
    }
    Kept kept;
    const Tensor x = rank.normal({6, kHidden}, "x");
    std::vector<double> results = {head.forward(x, targets, kept).sum};
    for (const double v : test::elements(head.backward_input(1, kept))) results.push_back(v);
    head.backward_weight(kept);
    for (const double v : test::elements(head.weight().gradient)) results.push_back(v);
    for (const double v : test::elements(head.logits(x))) results.push_back(v);
    return results;
  };
  EXPECT_EQ(run(true), run(false));
}

// Several ranks: of 29 words the last rank of three or four has fewer; of 5, the last of four none.

struct Trained {
  Outcome outcome;
  std::vector<Loss> losses;  // of each rank
  std::vector<double> logits;
};

Trained train(const Layout& layout, std::int64_t vocabulary) {
  const std::int64_t rows = layout.batch * layout.sequence;
  const std::vector<std::int32_t> targets = some_targets(rows, vocabulary);
  Trained trained;
  trained.losses.resize(static_cast<std::size_t>(layout.tp));
  trained.outcome =
      test::on_ranks(layout, [&](test::TestRank& rank, test::OutcomeOfRanks& collected) {
        const int number = rank.context.tp.rank();
        Head head(config(vocabulary), rank.context);
        rank.own(head);
        const Tensor x = test::local_rows(rank, kHidden, "x");
        Kept kept;
        trained.losses[static_cast<std::size_t>(number)] = head.forward(x, targets, kept);
        collected.add(&Outcome::dx, number, head.backward_input(0.5, kept));
        head.backward_weight(kept);
        head.visit([&](Parameter& p) { collected.add(p); });
        const std::vector<double> logits = test::elements(head.logits(x));
        if (number == layout.tp - 1) trained.logits = logits;
      });
  return trained;
}

TEST(HeadParallel, IsThatOfOneRank) {
  for (const std::int64_t vocabulary : {29, 5}) {
    const Trained serial = train({}, vocabulary);
    for (const Layout& layout : test::parallel_layouts()) {
      SCOPED_TRACE(std::to_string(vocabulary) + " on " + std::to_string(layout.tp) +
                   (layout.sequence_parallel ? " sp" : ""));
      const Trained parallel = train(layout, vocabulary);
      test::expect_close(parallel.outcome, serial.outcome, 1e-12);
      EXPECT_EQ(parallel.logits, serial.logits);  // each is computed by one rank, and moved
      EXPECT_NEAR(parallel.losses[0].sum, serial.losses[0].sum, 1e-12 * serial.losses[0].sum);
      for (const Loss& loss : parallel.losses) {
        EXPECT_EQ(loss.sum, parallel.losses[0].sum) << "the same on all ranks";
        EXPECT_EQ(loss.count, serial.losses[0].count);
      }
    }
  }
}

// Logits of a choice: a hidden state of ones whose norm is itself, and weights in its first column.
class HeadExtremes : public ::testing::TestWithParam<int> {
 protected:
  // The loss and d loss / d weight's first column, of one row.
  std::pair<double, std::vector<double>> run(const std::vector<double>& logits,
                                             std::int32_t target) {
    const int size = GetParam();
    double loss = NAN;
    const Outcome outcome =
        test::on_ranks({.tp = size, .type = DataType::float32, .batch = 1, .sequence = 1},
                       [&](test::TestRank& rank, test::OutcomeOfRanks& collected) {
                         Head head(config(std::ssize(logits)), rank.context);
                         rank.own(head);
                         prepare(head, logits);
                         const Tensor x = rank.normal({1, kHidden}, "x", 0);
                         x.as<float>()[0] = std::sqrt(static_cast<float>(kHidden));
                         Kept kept;
                         const Loss found = head.forward(x, {&target, 1}, kept);
                         if (rank.context.tp.rank() == 0) loss = found.sum;
                         head.backward_input(1, kept);
                         head.backward_weight(kept);
                         collected.add(head.weight());
                       });
    const std::vector<double>& all = outcome.gradients.at("lm_head.weight");
    std::vector<double> gradient;
    for (std::size_t i = 0; i < logits.size(); ++i)
      gradient.push_back(all[i * kHidden] / std::sqrt(static_cast<double>(kHidden)));
    return {loss, gradient};
  }

 private:
  static void prepare(Head& head, const std::vector<double>& logits) {
    head.visit([](Parameter& p) {
      for (std::int64_t i = 0; i < p.count(); ++i) test::set_element(p.value, i, 1);
    });
    const Parameter& weight = head.weight();
    weight.value.clear();
    for (std::int64_t v = 0; v < weight.part.length; ++v)
      weight.value.as<float>()[v * kHidden] =
          static_cast<float>(logits[static_cast<std::size_t>(weight.part.begin + v)] /
                             std::sqrt(static_cast<double>(kHidden)));
  }
};

TEST_P(HeadExtremes, FarBelowTheMaximum) {
  // The target's probability is 0 in float32, and on two ranks its whole part's.
  const auto [loss, gradient] = run({300, 299, -300, -301}, 2);
  EXPECT_NEAR(loss, 600 + std::log1p(std::exp(-1)), 1e-3);
  EXPECT_NEAR(gradient[0], 1 / (1 + std::exp(-1)), 1e-4);
  EXPECT_NEAR(gradient[1], 1 / (1 + std::exp(1)), 1e-4);
  EXPECT_NEAR(gradient[2], -1, 1e-4);
  EXPECT_EQ(gradient[3], 0);
}

TEST_P(HeadExtremes, MinusInfinityHasNoProbability) {
  // On two ranks, one has nothing else. The weights' zeros times infinity are NaN, so the logits
  // are made infinite by a product that overflows.
  const auto [loss, gradient] = run({1, 2, -1e39, -1e39}, 0);
  EXPECT_NEAR(loss, std::log1p(std::exp(1)), 1e-5);
  EXPECT_NEAR(gradient[0], -1 / (1 + std::exp(-1)), 1e-5);
  EXPECT_NEAR(gradient[1], 1 / (1 + std::exp(-1)), 1e-5);
  EXPECT_EQ(gradient[2], 0);
  EXPECT_EQ(gradient[3], 0);
}

TEST_P(HeadExtremes, NaNIsSeen) {
  const auto [loss, gradient] = run({1, 2, NAN, 3}, 0);
  EXPECT_TRUE(std::isnan(loss));
  EXPECT_TRUE(std::isnan(gradient[1]));
}

INSTANTIATE_TEST_SUITE_P(Ranks, HeadExtremes, ::testing::Values(1, 2));

TEST(HeadTypes, AreFloat64Rounded) {
  const Trained exact = train({}, 29);
  struct Case {
    DataType type;
    double tolerance;
  };
  for (const Case& c : {Case{DataType::bfloat16, 3e-2}, Case{DataType::float16, 4e-3},
                        Case{DataType::float32, 2e-6}}) {
    SCOPED_TRACE(to_string(c.type));
    const Trained narrow = train({.type = c.type}, 29);
    EXPECT_NEAR(narrow.losses[0].sum, exact.losses[0].sum, c.tolerance * exact.losses[0].sum);
    test::expect_close(narrow.outcome, exact.outcome, c.tolerance);
  }
}

// Logits of float32 are there for some rows at a time only.
TEST(HeadMemory, HasNoRoomForAllLogits) {
  constexpr std::int64_t kRows = 4096, kVocabulary = 2048;
  OneRank rank(DataType::bfloat16, 1, kRows);
  Head head(config(kVocabulary), rank.context);
  rank.own(head);
  const Tensor x = rank.normal({kRows, kHidden}, "x");
  const std::vector<std::int32_t> targets = some_targets(kRows, kVocabulary);
  rank.arena.reset_peaks();
  const std::size_t before = rank.arena.bytes(MemoryKind::activation);
  Kept kept;
  head.forward(x, targets, kept);
  head.backward_input(1, kept);
  head.backward_weight(kept);
  const std::size_t exponentials = kRows * kVocabulary * 2, chunk = std::size_t{8} << 20;
  const std::size_t rest = kRows * (4 * kHidden * 2 + 8 * 4);
  EXPECT_LE(rank.arena.peak(MemoryKind::activation) - before, exponentials + chunk + rest);
}

}  // namespace
}  // namespace tutti::training
