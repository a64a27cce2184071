// moe.hpp: a mixture of experts in place of a block's mlp: each row goes to the experts that the
// router finds most probable, wherever in the expert-parallel axis they are, and the weighted sum
// of what they make of it is the output.
//
// The sum is in the order of slots, so that where experts are changes no bit of the output or of
// the gradient of the input.
//
// Source  Lepikhin et al.: GShard (2020); Fedus, Zoph, Shazeer: Switch Transformers (2022); Jiang
//         et al.: Mixtral of experts (2024).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/modules/dispatch.hpp"
#include "training/modules/experts.hpp"
#include "training/modules/module.hpp"
#include "training/modules/router.hpp"

namespace tutti::training {

// x and y: [local rows, hidden].
class MixtureOfExperts final : public Module {
 public:
  // Parameters are name + ".gate.weight" and name + ".experts.E.w1.weight" and so on.
  MixtureOfExperts(const std::string& name, const ModelConfig& config, Context& context);

  // Adds to context.balance_loss.
  Tensor forward(const Tensor& x, Kept& kept) override;
  Tensor backward_input(const Tensor& dy, Kept& kept) override;
  void backward_weight(Kept& kept) override;
  void visit(const ParameterVisitor& visitor) override;

  // See Experts.
  void set_recompute(bool recompute) { experts_.set_recompute(recompute); }
  // See Attention.
  void drop_input(Kept& kept);
  void give_input(Kept& kept, const Tensor& x);

  // Of the latest forward, of this rank's rows: assignments that an expert had no room for, and
  // assignments to each expert before any were dropped.
  std::int64_t dropped() const { return dropped_; }
  const std::vector<std::int64_t>& load() const { return load_; }

 private:
  struct Saved {
    Kept router, experts;
    DispatchHandle handle;
    Tensor weights;  // of the assignments
    Tensor placed;   // what experts made of this rank's rows, for the gradient of the weights
  };

  Context& context_;
  double capacity_factor_;
  Router router_;
  Experts experts_;
  std::int64_t dropped_ = 0;
  std::vector<std::int64_t> load_;
};

}  // namespace tutti::training
