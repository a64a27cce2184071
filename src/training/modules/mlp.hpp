// mlp.hpp: the dense half of a transformer layer: down(silu(gate(x)) * up(x)), or of gpt2
// down(gelu(up(x))). Under tensor parallelism each rank has a share of the intermediate extent.
#pragma once

#include <optional>
#include <string>

#include "training/architecture/config.hpp"
#include "training/modules/linear.hpp"
#include "training/modules/module.hpp"

namespace tutti::training {

// x and y: [local rows, hidden].
class Mlp final : public Module {
 public:
  // Parameters are name + ".gate_proj.weight" (not of gpt2), ".up_proj.*" and ".down_proj.*", *
  // being weight, and bias of gpt2.
  Mlp(const std::string& name, const ModelConfig& config, Context& context);

  // Whether backward computes the input of the last layer again instead of keeping it: an
  // elementwise function of what is kept anyway.
  void set_recompute(bool recompute) { recompute_ = recompute; }

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
  struct Saved {
    Kept gate, up, down, bias;
    Tensor gate_output, up_output;  // until backward_input
  };

  Tensor activate(const Saved& saved) const;
  // Gradients by the outputs of gate and up, in the memory of these outputs.
  void activate_backward(const Saved& saved, const Tensor& dactivated) const;

  Context& context_;
  std::optional<Linear> gate_;  // not of gpt2
  Linear up_;
  Linear down_;
  std::optional<Bias> bias_;  // of gpt2: what down adds
  bool recompute_ = false;
};

}  // namespace tutti::training
