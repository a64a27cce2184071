// router.hpp: the layer that decides which experts each row goes to. Knows nothing of experts.
//
// Under tensor parallelism every rank has all rows and computes the same.
#pragma once

#include <cstdint>
#include <string>

#include "training/architecture/config.hpp"
#include "training/modules/module.hpp"
#include "training/ops/routing.hpp"

namespace tutti::training {

class Router final {
 public:
  // The parameter is name + ".weight", [experts, hidden].
  Router(const std::string& name, const ModelConfig& config, Context& context);

  // x: [rows, hidden]. Logits are of wide type: roundings must not move rows to other experts.
  // Adds to context.balance_loss.
  Routing forward(const Tensor& x, Kept& kept);
  // The gradient of x, given that of the weights and, by context.balance_scale, of the balance
  // loss. dweights: [rows, experts per token], of wide type. Since every tensor-parallel rank would
  // compute the same of what is to be summed over them, only the first does; the others' is empty.
  Tensor backward_input(const Tensor& dweights, Kept& kept);
  void backward_weight(Kept& kept);

  // For a composite that computes x again in backward: forward's x is let go of, and given back
  // before backward_weight.
  void drop_input(Kept& kept);
  void give_input(Kept& kept, const Tensor& x);

  void visit(const ParameterVisitor& visitor);

 private:
  struct Saved {
    Tensor x, dlogits;
    Routing routing;
  };

  Context& context_;
  std::int64_t experts_per_token_;
  Parameter weight_;
};

}  // namespace tutti::training
