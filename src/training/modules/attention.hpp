// attention.hpp: the half of a transformer layer in which rows look at earlier rows: projections to
// queries, keys and values, rotary positions (not of gpt2), attention, and a projection back.
//
// Under tensor parallelism each rank has a share of the query heads and the key-value heads that
// these attend to. Where there are fewer key-value heads than ranks, consecutive ranks have the
// same one, each for its own query heads; its weights' gradients are then parts of a sum over them
// (Parameter::copies).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "training/architecture/config.hpp"
#include "training/modules/linear.hpp"
#include "training/modules/module.hpp"
#include "training/ops/attention.hpp"
#include "training/ops/rope.hpp"

namespace tutti::training {

// x and y: [local rows, hidden].
class Attention final : public Module {
 public:
  // Parameters are name + ".q_proj.weight", ".k_proj", ".v_proj" and ".o_proj"; of gpt2 also
  // ".q_proj.bias" and so on.
  // Requires  tp divides the heads, and either tp divides the key-value heads or they divide tp.
  Attention(const std::string& name, const ModelConfig& config, Context& context);

  Tensor forward(const Tensor& x, Kept& kept) override;
  Tensor backward_input(const Tensor& dy, Kept& kept) override;
  void backward_weight(Kept& kept) override;
  void visit(const ParameterVisitor& visitor) override;

  // For a composite that computes x again in backward: forward's x is let go of, and given back
  // before backward_weight.
  // Blocking  giving it back gathers it from the ranks, if they have parts of it.
  void drop_input(Kept& kept);
  void give_input(Kept& kept, const Tensor& x);

 private:
  // q, k and v until backward_input has used them.
  struct Saved {
    Kept q_proj, k_proj, v_proj, o_proj, bias;
    AttentionInput input;
    AttentionOutput output;
  };

  AttentionShape shape() const;

  Context& context_;
  std::int64_t heads_, kv_heads_;  // here
  std::int64_t head_size_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::unique_ptr<Bias> bias_;                  // of gpt2: what o_proj adds
  std::unique_ptr<RotaryPositions> positions_;  // not of gpt2
};

}  // namespace tutti::training
