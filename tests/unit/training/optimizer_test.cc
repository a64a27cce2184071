// That steps are what the formulae say, that the bits do not depend on how weights are split, and
// the learning rate's course.
#include "training/optim/optimizer.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "training/optim/learning_rate.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training {
namespace {

Tensor make(Arena& arena, DataType type, std::int64_t count) {
  return Tensor::zeros(arena, MemoryKind::optimizer, type, Shape{count});
}

OptimizerSpan make_span(Arena& arena, DataType type, std::int64_t count) {
  OptimizerSpan span;
  span.value = make(arena, type, count);
  span.gradient = make(arena, type, count);
  span.first_moment = make(arena, type, count);
  span.second_moment = make(arena, type, count);
  return span;
}

void fill(const Tensor& tensor, unsigned seed, double size) {
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    const double value = size * (static_cast<double>(random()) * 0x1p-31 - 1);
    if (tensor.type() == DataType::float64)
      tensor.as<double>()[i] = value;
    else
      tensor.as<float>()[i] = static_cast<float>(value);
  }
}

OptimizerSpan part_of(const OptimizerSpan& span, std::int64_t begin, std::int64_t count) {
  OptimizerSpan part = span;
  part.value = span.value.elements(begin, count);
  part.gradient = span.gradient.elements(begin, count);
  part.first_moment = span.first_moment.elements(begin, count);
  part.second_moment = span.second_moment.elements(begin, count);
  if (!span.rounded.empty()) part.rounded = span.rounded.elements(begin, count);
  return part;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

// The textbook's AdamW, one number, in double.
struct PlainAdamW {
  double value, m = 0, v = 0;

  void step(const OptimizerSettings& s, double rate, double gradient, int number) {
    m = s.beta1 * m + (1 - s.beta1) * gradient;
    v = s.beta2 * v + (1 - s.beta2) * gradient * gradient;
    const double corrected_m = m / (1 - std::pow(s.beta1, number));
    const double corrected_v = v / (1 - std::pow(s.beta2, number));
    value -= rate * (corrected_m / (std::sqrt(corrected_v) + s.epsilon) + s.weight_decay * value);
  }
};

double value_at(const Tensor& tensor, std::int64_t i) {
  return tensor.type() == DataType::float64 ? tensor.as<double>()[i]
                                            : static_cast<double>(tensor.as<float>()[i]);
}

class Wide : public testing::TestWithParam<DataType> {
 protected:
  double tolerance() const { return GetParam() == DataType::float64 ? 1e-13 : 2e-6; }
  Arena arena_;
};

TEST_P(Wide, TheFirstAdamWStepIsTheSignOfTheGradient) {
  const OptimizerSettings settings{.epsilon = 0, .weight_decay = 0.1};
  const OptimizerSpan span = make_span(arena_, GetParam(), 100);
  fill(span.value, 1, 1);
  fill(span.gradient, 2, 1e-3);
  std::vector<double> before;
  for (std::int64_t i = 0; i < 100; ++i) before.push_back(value_at(span.value, i));
  update(settings, {.number = 1, .learning_rate = 0.01}, span);
  for (std::int64_t i = 0; i < 100; ++i) {
    const double sign = value_at(span.gradient, i) > 0 ? 1 : -1;
    const double expected = before[static_cast<std::size_t>(i)] * (1 - 0.01 * 0.1) - 0.01 * sign;
    EXPECT_NEAR(value_at(span.value, i), expected, tolerance());
  }
}

TEST_P(Wide, AdamWFollowsAPlainReference) {
  const OptimizerSettings settings{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6};
  const OptimizerSpan span = make_span(arena_, GetParam(), 3000);
  fill(span.value, 1, 1);
  std::vector<PlainAdamW> plain;
  for (std::int64_t i = 0; i < 3000; ++i) plain.push_back({value_at(span.value, i)});
  for (int number = 1; number <= 30; ++number) {
    const double rate = 0.01 / number;
    fill(span.gradient, static_cast<unsigned>(100 + number), 0.5);
    update(settings, {.number = number, .learning_rate = rate}, span);
    for (std::int64_t i = 0; i < 3000; ++i)
      plain[static_cast<std::size_t>(i)].step(settings, rate, value_at(span.gradient, i), number);
  }
  double worst = 0;
  for (std::int64_t i = 0; i < 3000; ++i)
    worst = std::max(worst,
                     std::abs(value_at(span.value, i) - plain[static_cast<std::size_t>(i)].value));
  EXPECT_LT(worst, tolerance());
}

// With a constant gradient g the n-th velocity is g (1 - u^n) / (1 - u).
TEST_P(Wide, MomentumSumsAGeometricSeries) {
  const OptimizerSettings settings{.kind = OptimizerKind::sgd, .weight_decay = 0, .momentum = 0.75};
  const OptimizerSpan span = make_span(arena_, GetParam(), 5);
  fill(span.gradient, 3, 1);
  double way = 0;
  for (int number = 1; number <= 12; ++number) {
    update(settings, {.number = number, .learning_rate = 0.125}, span);
    way += 0.125 * (1 - std::pow(0.75, number)) / (1 - 0.75);
  }
  for (std::int64_t i = 0; i < 5; ++i)
    EXPECT_NEAR(value_at(span.value, i), -way * value_at(span.gradient, i), 10 * tolerance());
}

TEST_P(Wide, PlainSgdDecaysThroughTheGradient) {
  const OptimizerSettings settings{.kind = OptimizerKind::sgd, .weight_decay = 0.5, .momentum = 0};
  ASSERT_EQ(moment_count(settings), 0u);
  OptimizerSpan span = make_span(arena_, GetParam(), 5);
  span.first_moment = span.second_moment = Tensor();
  fill(span.value, 4, 1);
  fill(span.gradient, 5, 1);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 5; ++i)
    expected.push_back(value_at(span.value, i) * (1 - 0.25 * 0.5) -
                       0.25 * value_at(span.gradient, i));
  update(settings, {.learning_rate = 0.25}, span);
  for (std::int64_t i = 0; i < 5; ++i)
    EXPECT_NEAR(value_at(span.value, i), expected[static_cast<std::size_t>(i)], tolerance());
}

TEST_P(Wide, SpansThatDoNotDecayOnlyFollowTheGradient) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
    const OptimizerSettings settings{.kind = kind, .weight_decay = 0.5};
    OptimizerSpan span = make_span(arena_, GetParam(), 4);
    fill(span.value, 6, 1);
    const double before = value_at(span.value, 0);
    span.decays = false;
    update(settings, {.learning_rate = 0.25}, span);  // the gradient is zero
    EXPECT_EQ(value_at(span.value, 0), before);
    span.decays = true;
    update(settings, {.number = 2, .learning_rate = 0.25}, span);
    EXPECT_NEAR(value_at(span.value, 0), before * (1 - 0.25 * 0.5), tolerance());
  }
}

TEST_P(Wide, GradientsAreScaledFirst) {
  for (const OptimizerSettings& settings :
       {OptimizerSettings{}, OptimizerSettings{.kind = OptimizerKind::sgd},
        OptimizerSettings{.kind = OptimizerKind::sgd, .momentum = 0}}) {
    const OptimizerSpan once = make_span(arena_, GetParam(), 50);
    const OptimizerSpan scaled = make_span(arena_, GetParam(), 50);
    fill(once.gradient, 7, 1);
    fill(scaled.gradient, 7, 1024);
    update(settings, {.learning_rate = 0.1}, once);
    update(settings, {.learning_rate = 0.1, .gradient_scale = 1.0 / 1024}, scaled);
    EXPECT_TRUE(same_bytes(once.value, scaled.value));
    EXPECT_TRUE(same_bytes(once.first_moment, scaled.first_moment));
  }
}

void expect_splits_change_nothing(Arena& arena, DataType type, const OptimizerSettings& settings,
                                  const std::vector<std::int64_t>& lengths) {
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) total += length;
  OptimizerSpan whole = make_span(arena, type, total);
  OptimizerSpan split = make_span(arena, type, total);
  if (type == DataType::float32) {
    whole.rounded = make(arena, DataType::bfloat16, total);
    split.rounded = make(arena, DataType::bfloat16, total);
  }
  fill(whole.value, 8, 1);
  fill(split.value, 8, 1);
  for (int number = 1; number <= 3; ++number) {
    const OptimizerStep step{.number = number, .learning_rate = 0.01, .gradient_scale = 0.3};
    fill(whole.gradient, static_cast<unsigned>(number), 1);
    fill(split.gradient, static_cast<unsigned>(number), 1);
    update(settings, step, whole);
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      update(settings, step, part_of(split, begin, length));
      begin += length;
    }
  }
  EXPECT_TRUE(same_bytes(whole.value, split.value));
  EXPECT_TRUE(same_bytes(whole.first_moment, split.first_moment));
  EXPECT_TRUE(same_bytes(whole.second_moment, split.second_moment));
  EXPECT_TRUE(same_bytes(whole.rounded, split.rounded));
}

TEST_P(Wide, AnySplitGivesTheSameBits) {
  for (const OptimizerSettings& settings :
       {OptimizerSettings{}, OptimizerSettings{.kind = OptimizerKind::sgd},
        OptimizerSettings{.kind = OptimizerKind::sgd, .momentum = 0}})
    for (const std::vector<std::int64_t>& lengths : std::vector<std::vector<std::int64_t>>{
             {1, 1, 1, 1}, {3, 5, 1}, {0, 17, 33}, {1, 2047, 2049}, {4096, 7, 4096}, {63, 64, 65}})
      expect_splits_change_nothing(arena_, GetParam(), settings, lengths);
}

INSTANTIATE_TEST_SUITE_P(Types, Wide, testing::Values(DataType::float32, DataType::float64));

TEST(Optimizer, RoundsTheNewValueToNearestEven) {
  Arena arena;
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    OptimizerSpan span = make_span(arena, DataType::float32, 5000);
    span.rounded = make(arena, type, 5000);
    fill(span.value, 9, 1);
    fill(span.gradient, 10, 1);
    update({}, {.learning_rate = 0.01}, span);
    for (std::int64_t i = 0; i < 5000; ++i) {
      const float value = span.value.as<float>()[i];
      if (type == DataType::bfloat16)
        ASSERT_EQ(span.rounded.as<bfloat16>()[i], to_bfloat16(value));
      else
        ASSERT_EQ(span.rounded.as<float16>()[i], to_float16(value));
    }
  }
}

TEST(Optimizer, SaysHowManyMomentsItKeeps) {
  EXPECT_EQ(moment_count({}), 2u);
  EXPECT_EQ(moment_count({.kind = OptimizerKind::sgd}), 1u);
  EXPECT_EQ(moment_count({.kind = OptimizerKind::sgd, .momentum = 0}), 0u);
}

TEST(LearningRate, WarmsUpInEqualSteps) {
  const LearningRateSettings settings{.peak = 2, .warmup_steps = 4, .decay = Decay::constant};
  EXPECT_EQ(learning_rate(settings, 0, 10), 0.5);
  EXPECT_EQ(learning_rate(settings, 1, 10), 1.0);
  EXPECT_EQ(learning_rate(settings, 3, 10), 2.0);
  EXPECT_EQ(learning_rate(settings, 9, 10), 2.0);
}

TEST(LearningRate, DecaysFromThePeakToTheFinalFraction) {
  for (const Decay decay : {Decay::cosine, Decay::linear}) {
    const LearningRateSettings settings{
        .peak = 8, .warmup_steps = 10, .decay = decay, .final_fraction = 0.25};
    EXPECT_DOUBLE_EQ(learning_rate(settings, 10, 110), 8);
    EXPECT_NEAR(learning_rate(settings, 60, 110), 5, 1e-12);  // half way, of both curves
    EXPECT_DOUBLE_EQ(learning_rate(settings, 110, 110), 2);
    EXPECT_DOUBLE_EQ(learning_rate(settings, 100000, 110), 2);
    for (std::int64_t step = 10; step < 110; ++step)
      EXPECT_LT(learning_rate(settings, step + 1, 110), learning_rate(settings, step, 110));
  }
}

TEST(LearningRate, CosineIsFlatAtItsEndsAndLinearIsNot) {
  const LearningRateSettings cosine{.peak = 1, .decay = Decay::cosine, .final_fraction = 0};
  const LearningRateSettings linear{.peak = 1, .decay = Decay::linear, .final_fraction = 0};
  EXPECT_NEAR(learning_rate(cosine, 25, 100), 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(learning_rate(linear, 25, 100), 0.75, 1e-12);
}

TEST(LearningRate, AWarmUpLongerThanTheRunIsCutOff) {
  const LearningRateSettings settings{.peak = 1, .warmup_steps = 100};
  EXPECT_EQ(learning_rate(settings, 4, 5), 0.05);
  EXPECT_TRUE(std::isfinite(learning_rate(settings, 100, 5)));
}

}  // namespace
}  // namespace tutti::training
