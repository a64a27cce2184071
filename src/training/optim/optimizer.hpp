// optimizer.hpp: one optimizer step over a part of the weights: AdamW, and SGD with momentum.
//
// Each element's result depends on that element alone, so that the bits do not depend on how ranks
// share the weights. Knows nothing of ranks, of norms (the caller passes a factor for gradients) or
// of when a step is skipped.
//
// Source  Loshchilov, Hutter: Decoupled weight decay regularization (ICLR 2019);
//         Kingma, Ba: Adam (ICLR 2015).
#pragma once

#include <cstddef>
#include <cstdint>

#include "training/tensor/tensor.hpp"

namespace tutti::training {

enum class OptimizerKind : unsigned char { adamw, sgd };

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9;         // of adamw
  double beta2 = 0.95;        // of adamw
  double epsilon = 1e-8;      // of adamw, added to the root of the second moment
  double weight_decay = 0.1;  // adamw: decoupled; sgd: added to the gradient
  double momentum = 0.9;      // of sgd

  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

// How many moments an element has: adamw 2; sgd 1, or 0 without momentum.
std::size_t moment_count(const OptimizerSettings& settings);

// What changes from step to step.
struct OptimizerStep {
  std::int64_t number = 1;  // of the step, from 1: for adamw's correction of the moments' bias
  double learning_rate = 0;
  double gradient_scale = 1;  // gradients are multiplied by it first: clipping, loss scale
};

// Consecutive elements of one parameter, or of several that decay alike. All tensors have as many
// elements; value, gradient and moments are of one type, float32 or float64.
struct OptimizerSpan {
  Tensor value;          // the weights themselves, or their master copy where they have 16 bits
  Tensor gradient;       // only read
  Tensor first_moment;   // adamw: mean of gradients; sgd: velocity; zeros before the first step
  Tensor second_moment;  // adamw: mean of squared gradients; zeros before the first step
  Tensor rounded;        // optional, bfloat16 or float16: receives the new value, to nearest even
  bool decays = true;    // whether weight decay applies
};

// Requires  the tensors that the settings' kind needs; step.number >= 1.
void update(const OptimizerSettings& settings, const OptimizerStep& step,
            const OptimizerSpan& span);

}  // namespace tutti::training
