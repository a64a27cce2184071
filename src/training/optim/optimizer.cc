// optimizer.cc: see optimizer.hpp.
//
// The loops are plain, without branches or calls in them, for the compiler to vectorise; addition,
// multiplication, division and root are rounded alike in vectors and in the elements left over.
// The root is only vectorised where it need not set errno (-fno-math-errno).
#include "training/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "training/tensor/element.hpp"

namespace tutti::training {
namespace {

// What all elements share, rounded once to the type of the arithmetic.
template <typename W>
struct AdamW {
  W gradient_scale, kept;  // kept: what weight decay leaves of a value
  W beta1, rest1, beta2, rest2;
  W step_size;    // of the first moment, with its correction
  W root_factor;  // of the second moment's root: its correction
  W epsilon;
};

template <typename W>
AdamW<W> adamw(const OptimizerSettings& settings, const OptimizerStep& step, bool decays) {
  const double n = static_cast<double>(step.number);
  const double decay = decays ? settings.weight_decay : 0;
  return {.gradient_scale = static_cast<W>(step.gradient_scale),
          .kept = static_cast<W>(1 - step.learning_rate * decay),
          .beta1 = static_cast<W>(settings.beta1),
          .rest1 = static_cast<W>(1 - settings.beta1),
          .beta2 = static_cast<W>(settings.beta2),
          .rest2 = static_cast<W>(1 - settings.beta2),
          .step_size = static_cast<W>(step.learning_rate / (1 - std::pow(settings.beta1, n))),
          .root_factor = static_cast<W>(1 / std::sqrt(1 - std::pow(settings.beta2, n))),
          .epsilon = static_cast<W>(settings.epsilon)};
}

template <typename W>
void adamw_loop(const AdamW<W>& a, std::size_t count, W* __restrict value,
                const W* __restrict gradient, W* __restrict first, W* __restrict second) {
  for (std::size_t i = 0; i < count; ++i) {
    const W g = gradient[i] * a.gradient_scale;
    const W m = a.beta1 * first[i] + a.rest1 * g;
    const W v = a.beta2 * second[i] + a.rest2 * (g * g);
    first[i] = m;
    second[i] = v;
    const W root = std::sqrt(v) * a.root_factor + a.epsilon;
    value[i] = value[i] * a.kept - a.step_size * (m / root);
  }
}

template <typename W>
struct Sgd {
  W gradient_scale, decay, momentum, learning_rate;
};

template <typename W>
Sgd<W> sgd(const OptimizerSettings& settings, const OptimizerStep& step, bool decays) {
  return {.gradient_scale = static_cast<W>(step.gradient_scale),
          .decay = static_cast<W>(decays ? settings.weight_decay : 0),
          .momentum = static_cast<W>(settings.momentum),
          .learning_rate = static_cast<W>(step.learning_rate)};
}

template <typename W>
void sgd_loop(const Sgd<W>& s, std::size_t count, W* __restrict value,
              const W* __restrict gradient) {
  for (std::size_t i = 0; i < count; ++i)
    value[i] -= s.learning_rate * (gradient[i] * s.gradient_scale + s.decay * value[i]);
}

template <typename W>
void momentum_loop(const Sgd<W>& s, std::size_t count, W* __restrict value,
                   const W* __restrict gradient, W* __restrict velocity) {
  for (std::size_t i = 0; i < count; ++i) {
    const W g = gradient[i] * s.gradient_scale + s.decay * value[i];
    velocity[i] = s.momentum * velocity[i] + g;
    value[i] -= s.learning_rate * velocity[i];
  }
}

// Elements that are updated before they are rounded, while they are still in the cache.
constexpr std::size_t kBlock = 2048;

template <typename W>
void update_block(const OptimizerSettings& settings, const OptimizerStep& step,
                  const OptimizerSpan& span, std::size_t begin, std::size_t count) {
  W* const value = span.value.as<W>() + begin;
  const W* const gradient = span.gradient.as<W>() + begin;
  if (settings.kind == OptimizerKind::adamw)
    adamw_loop(adamw<W>(settings, step, span.decays), count, value, gradient,
               span.first_moment.as<W>() + begin, span.second_moment.as<W>() + begin);
  else if (moment_count(settings) == 1)
    momentum_loop(sgd<W>(settings, step, span.decays), count, value, gradient,
                  span.first_moment.as<W>() + begin);
  else
    sgd_loop(sgd<W>(settings, step, span.decays), count, value, gradient);
}

// Reads float32 whatever W is: float64 weights have no rounded copy.
void round_block(const OptimizerSpan& span, std::size_t begin, std::size_t count) {
  const float* const value = span.value.as<float>() + begin;
  visit(span.rounded.type(), [&](auto zero) {
    using T = decltype(zero);
    T* const rounded = span.rounded.as<T>() + begin;
    if constexpr (sizeof(T) == 2)
      for (std::size_t i = 0; i < count; ++i) rounded[i] = store<T>(value[i]);
    else
      TRAINING_CHECK(false, "only 16-bit values are rounded copies");
  });
}

template <typename W>
void update_all(const OptimizerSettings& settings, const OptimizerStep& step,
                const OptimizerSpan& span) {
  const auto count = static_cast<std::size_t>(span.value.count());
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    update_block<W>(settings, step, span, begin, length);
    if (!span.rounded.empty()) round_block(span, begin, length);
  }
}

void check_span(const OptimizerSettings& settings, const OptimizerSpan& span) {
  const std::int64_t count = span.value.count();
  const std::size_t moments = moment_count(settings);
  TRAINING_CHECK(span.gradient.count() == count, "a gradient for each value");
  TRAINING_CHECK(moments < 1 || span.first_moment.count() == count, "a moment for each value");
  TRAINING_CHECK(moments < 2 || span.second_moment.count() == count, "two moments for each value");
  TRAINING_CHECK(span.rounded.empty() || span.rounded.count() == count, "a copy of each value");
}

}  // namespace

std::size_t moment_count(const OptimizerSettings& settings) {
  if (settings.kind == OptimizerKind::adamw) return 2;
  return settings.momentum != 0 ? 1 : 0;
}

void update(const OptimizerSettings& settings, const OptimizerStep& step,
            const OptimizerSpan& span) {
  TRAINING_CHECK(step.number >= 1, "optimizer steps are counted from 1");
  check_span(settings, span);
  if (span.value.count() == 0) return;
  if (span.value.type() == DataType::float64)
    update_all<double>(settings, step, span);
  else
    update_all<float>(settings, step, span);
}

}  // namespace tutti::training
