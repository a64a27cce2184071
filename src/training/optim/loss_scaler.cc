// loss_scaler.cc: see loss_scaler.hpp.
#include "training/optim/loss_scaler.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "training/tensor/check.hpp"

namespace tutti::training {

LossScaler::LossScaler(const LossScalerSettings& settings) : settings_(settings) {
  TRAINING_CHECK(settings.minimum > 0 && settings.minimum <= settings.initial &&
                     settings.initial <= settings.maximum,
                 "a loss scale lies between its minimum and maximum");
  TRAINING_CHECK(settings.factor > 1 && settings.window >= 1 && settings.hysteresis >= 1,
                 "a loss scale that moves");
  state_.scale = settings.initial;
  state_.patience = settings.hysteresis;
}

bool LossScaler::update(bool overflow) {
  if (overflow) {
    state_.clean_steps = 0;
    ++state_.skipped;
    shrink();
  } else if (++state_.clean_steps == settings_.window) {
    state_.clean_steps = 0;
    grow();
  }
  return overflow;
}

void LossScaler::shrink() {
  if (state_.patience > 1)
    --state_.patience;
  else
    state_.scale = std::max(state_.scale / settings_.factor, settings_.minimum);
}

void LossScaler::grow() {
  state_.patience = settings_.hysteresis;
  state_.scale = std::min(state_.scale * settings_.factor, settings_.maximum);
}

Status LossScaler::restore(const State& state) {
  const auto refused = [](std::string_view what, auto value, auto low, auto high) {
    return Status(StatusCode::corrupt_data,
                  fmt::format("loss scaler: {} is {}, not from {} to {}", what, value, low, high));
  };
  if (!(state.scale >= settings_.minimum && state.scale <= settings_.maximum))
    return refused("scale", state.scale, settings_.minimum, settings_.maximum);
  if (state.clean_steps < 0 || state.clean_steps >= settings_.window)
    return refused("clean_steps", state.clean_steps, 0, settings_.window - 1);
  if (state.patience < 1 || state.patience > settings_.hysteresis)
    return refused("patience", state.patience, 1, settings_.hysteresis);
  if (state.skipped < 0) return refused("skipped", state.skipped, 0, "2^63 - 1");
  state_ = state;
  return {};
}

}  // namespace tutti::training
