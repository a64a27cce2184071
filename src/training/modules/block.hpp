// block.hpp: one transformer layer: x + attention(norm(x)), then x + mlp(norm(x)), the mlp of some
// architectures a mixture of experts.
#pragma once

#include <memory>

#include "training/architecture/config.hpp"
#include "training/architecture/recompute.hpp"
#include "training/modules/module.hpp"

namespace tutti::training {

class MixtureOfExperts;

// x and y: [local rows, hidden]. What is computed again is computed by the same instructions, so
// that results are the same bits whatever is kept.
class Block final : public Module {
 public:
  Block(const ModelConfig& config, std::int64_t layer, Context& context,
        Recompute recompute = Recompute::none);
  ~Block() override;

  Tensor forward(const Tensor& x, Kept& kept) override;
  Tensor backward_input(const Tensor& dy, Kept& kept) override;
  void backward_weight(Kept& kept) override;
  void visit(const ParameterVisitor& visitor) override;

  std::int64_t forward_calls() const;  // for proofs: with recomputation, more than micro-batches
  const MixtureOfExperts* mixture() const;  // null: it has an mlp

 private:
  struct Parts;
  struct Saved;

  // Forward, with all or some of what backward needs put into `saved`.
  Tensor run(const Tensor& x, Saved& saved);
  // The gradient of what came out of attention and its residual.
  Tensor backward_second_half(const Tensor& dy, Saved& saved);

  Context& context_;
  Recompute recompute_;
  std::int64_t forward_calls_ = 0;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti::training
