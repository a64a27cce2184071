// learning_rate.hpp: how large each optimizer step is: a linear warm-up, then a decay.
//
// A pure function of the step's number, so that a resumed run goes on where it was without keeping
// anything. Knows no optimizer.
#pragma once

#include <cstdint>

namespace tutti::training {

enum class Decay : unsigned char { cosine, linear, constant };

struct LearningRateSettings {
  double peak = 3e-4;
  std::int64_t warmup_steps = 0;
  Decay decay = Decay::cosine;
  double final_fraction = 0.1;  // of the peak, which the decay reaches after the last step

  friend bool operator==(const LearningRateSettings&, const LearningRateSettings&) = default;
};

// The learning rate of optimizer step `step` (the first is 0) in a run of `steps`.
//
// While step < warmup_steps it is peak * (step + 1) / warmup_steps; then it goes from the peak at
// step warmup_steps to peak * final_fraction at step `steps`, and stays there.
double learning_rate(const LearningRateSettings& settings, std::int64_t step, std::int64_t steps);

}  // namespace tutti::training
