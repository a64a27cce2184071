// head.hpp: the end of the model: the last norm, the logits, and the loss. Under tensor parallelism
// each rank has the logits of a range of the vocabulary; the loss needs three numbers of each row
// from the others (maximum, sum of exponentials, the target's logit), not their logits.
//
// Source  Shoeybi et al.: Megatron-LM (2019), section 3.
#pragma once

#include <span>

#include "training/architecture/config.hpp"
#include "training/architecture/targets.hpp"
#include "training/modules/embedding.hpp"
#include "training/modules/linear.hpp"
#include "training/modules/norm.hpp"

namespace tutti::training {

struct Loss {
  double sum = 0;          // of -log p(target), in nats, added in the order of rows
  std::int64_t count = 0;  // rows that counted
};

class Head final {
 public:
  Head(const ModelConfig& config, Context& context);

  // x: [local rows, hidden]; targets: [rows]. The same Loss on all tensor-parallel ranks.
  Loss forward(const Tensor& x, std::span<const std::int32_t> targets, Kept& kept);
  // The gradient of x, of `scale` times the sum of losses.
  Tensor backward_input(double scale, Kept& kept);
  void backward_weight(Kept& kept);

  // x: [local rows, hidden]; the result: [rows, vocabulary] of wide_type(), whole on every rank.
  Tensor logits(const Tensor& x);

  void visit(const ParameterVisitor& visitor);
  Parameter& weight() { return weight_; }  // "lm_head.weight", [vocabulary, hidden]

 private:
  void multiply_by_weight(const Tensor& x, const MatrixView& logits) const;

  Context& context_;
  std::int64_t vocabulary_;
  VocabularyPart part_;
  Norm norm_;  // "model.norm"
  Parameter weight_;
};

}  // namespace tutti::training
