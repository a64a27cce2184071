// learning_rate.cc: see learning_rate.hpp.
#include "training/optim/learning_rate.hpp"

#include <algorithm>
#include <cmath>

namespace tutti::training {
namespace {

constexpr double kPi = 3.14159265358979323846;

// What remains of the way from the final rate to the peak: 1 at the begin, 0 at the end.
double remaining(Decay decay, double progress) {
  switch (decay) {
    case Decay::cosine:
      return 0.5 * (1 + std::cos(kPi * progress));
    case Decay::linear:
      return 1 - progress;
    case Decay::constant:
      break;
  }
  return 1;
}

}  // namespace

double learning_rate(const LearningRateSettings& settings, std::int64_t step, std::int64_t steps) {
  if (step < settings.warmup_steps)
    return settings.peak * static_cast<double>(step + 1) /
           static_cast<double>(settings.warmup_steps);
  const std::int64_t length = std::max<std::int64_t>(steps - settings.warmup_steps, 1);
  const std::int64_t done = std::min(step - settings.warmup_steps, length);
  const double progress = static_cast<double>(done) / static_cast<double>(length);
  const double fraction =
      settings.final_fraction + (1 - settings.final_fraction) * remaining(settings.decay, progress);
  return settings.peak * fraction;
}

}  // namespace tutti::training
