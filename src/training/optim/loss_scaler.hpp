// loss_scaler.hpp: the factor by which float16 training multiplies its loss, so that small
// gradients do not vanish: as large as gradients bear without overflow.
//
// Knows nothing of gradients: whoever drives the step says whether any of any rank overflowed.
//
// Source  Micikevicius et al.: Mixed precision training (ICLR 2018); the rules are those of
//         DeepSpeed's dynamic loss scale.
#pragma once

#include <cstdint>

#include "tutti/status.hpp"

namespace tutti::training {

struct LossScalerSettings {
  double initial = 65536;
  double factor = 2;            // by which the scale grows and shrinks
  std::int64_t window = 1000;   // steps without overflow after which it grows
  std::int64_t hysteresis = 2;  // overflows since it last grew, of which the last one shrinks it
  double minimum = 1;
  double maximum = 0x1p60;  // where even gradients that are all zero stop it
};

// A state machine that makes the same steps on all ranks, because all see the same overflows.
class LossScaler {
 public:
  // All that it remembers, for checkpoints.
  struct State {
    double scale = 1;
    std::int64_t clean_steps = 0;  // since an overflow or growth
    std::int64_t patience = 1;     // the overflow that makes it 0 shrinks the scale
    std::int64_t skipped = 0;      // steps so far

    friend bool operator==(const State&, const State&) = default;
  };

  // Requires  0 < minimum <= initial <= maximum, factor > 1, window >= 1, hysteresis >= 1.
  explicit LossScaler(const LossScalerSettings& settings = {});

  // What the loss of the next step is multiplied by.
  double scale() const { return state_.scale; }

  // Ends a step; true when it must be skipped: the weights stay, and nothing else counts it.
  // After the first overflow of `hysteresis` the scale stays; each one from the last of them on
  // shrinks it, until growth grants patience again.
  bool update(bool overflow);

  const State& state() const { return state_; }

  // Goes on from a checkpoint's state. Errors  corrupt_data: no state that this scaler could have.
  Status restore(const State& state);

 private:
  void shrink();
  void grow();

  LossScalerSettings settings_;
  State state_;
};

}  // namespace tutti::training
