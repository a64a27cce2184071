// When the loss scale grows, shrinks and stays.
#include "training/optim/loss_scaler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tutti::training {
namespace {

// Runs the steps and gives the scale after each.
std::vector<double> scales(LossScaler& scaler, const std::vector<bool>& overflows) {
  std::vector<double> seen;
  for (const bool overflow : overflows) {
    EXPECT_EQ(scaler.update(overflow), overflow) << "a step is skipped when it overflowed";
    seen.push_back(scaler.scale());
  }
  return seen;
}

using Scales = std::vector<double>;

// The next three have the settings of DeepSpeed's own tests: a window of 2, no hysteresis.
TEST(LossScaler, WithoutOverflowItGrowsInEachWindow) {
  LossScaler scaler({.initial = 256, .window = 2, .hysteresis = 1});
  EXPECT_EQ(scales(scaler, std::vector<bool>(10, false)),
            (Scales{256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096, 8192}));
  EXPECT_EQ(scaler.state().skipped, 0);
}

TEST(LossScaler, WithNothingButOverflowItShrinksToItsMinimum) {
  LossScaler scaler({.initial = 16, .window = 2, .hysteresis = 1});
  EXPECT_EQ(scales(scaler, std::vector<bool>(7, true)), (Scales{8, 4, 2, 1, 1, 1, 1}));
  EXPECT_EQ(scaler.state().skipped, 7);
}

TEST(LossScaler, WithSomeOverflowItShrinksAndGrowsAgain) {
  LossScaler scaler({.initial = 256, .window = 2, .hysteresis = 1});
  EXPECT_EQ(scales(scaler, {true, true}), (Scales{128, 64}));
  EXPECT_EQ(scales(scaler, {false, false, false}), (Scales{64, 128, 128}));
  EXPECT_EQ(scales(scaler, {true}), (Scales{64}));
  EXPECT_EQ(scales(scaler, {false, false, false}), (Scales{64, 128, 128}));
}

TEST(LossScaler, HysteresisForgivesTheFirstOverflow) {
  LossScaler scaler({.initial = 256, .window = 3, .hysteresis = 2});
  EXPECT_EQ(scales(scaler, {true, true, true}), (Scales{256, 128, 64}));
  // Growth forgives again, clean steps alone do not.
  EXPECT_EQ(scales(scaler, {false, false, true}), (Scales{64, 64, 32}));
  EXPECT_EQ(scales(scaler, {false, false, false, true, true}), (Scales{32, 32, 64, 64, 32}));
}

TEST(LossScaler, ByDefaultItDoublesAfterAThousandSteps) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 999; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(LossScaler, StaysFiniteForever) {
  LossScaler scaler({.window = 1});
  for (int i = 0; i < 5000; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p60);
}

TEST(LossScaler, GoesOnFromItsState) {
  const LossScalerSettings settings{.initial = 1024, .window = 5, .hysteresis = 3};
  LossScaler first(settings);
  const std::vector<bool> begin{false, true, true, false, false};
  const std::vector<bool> rest{false, false, false, true, true, true, false, true};
  scales(first, begin);
  LossScaler second(settings);
  ASSERT_TRUE(second.restore(first.state()).ok());
  EXPECT_EQ(scales(second, rest), scales(first, rest));
  EXPECT_EQ(second.state(), first.state());
}

TEST(LossScaler, RefusesAStateThatItCouldNotHave) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const LossScaler::State good{.scale = 4, .clean_steps = 3, .patience = 2, .skipped = 1};
  const auto with = [&](auto change) {
    LossScaler::State state = good;
    change(state);
    LossScaler scaler;
    const LossScaler::State before = scaler.state();
    const Status status = scaler.restore(state);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::corrupt_data);
      EXPECT_EQ(scaler.state(), before);
    }
    return status.message();
  };
  using State = LossScaler::State;
  EXPECT_EQ(with([](State&) {}), "");
  EXPECT_NE(with([](State& s) { s.scale = 0.5; }).find("scale is 0.5"), std::string::npos);
  EXPECT_NE(with([&](State& s) { s.scale = nan; }), "");
  EXPECT_NE(with([](State& s) { s.scale = HUGE_VAL; }), "");
  EXPECT_NE(with([](State& s) { s.clean_steps = 1000; }), "");
  EXPECT_NE(with([](State& s) { s.clean_steps = -1; }), "");
  EXPECT_NE(with([](State& s) { s.patience = 0; }), "");
  EXPECT_NE(with([](State& s) { s.patience = 3; }), "");
  EXPECT_NE(with([](State& s) { s.skipped = -1; }), "");
}

}  // namespace
}  // namespace tutti::training
