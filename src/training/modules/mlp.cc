// mlp.cc: see mlp.hpp. Knows nothing of the layer around it.
#include "training/modules/mlp.hpp"

#include <cmath>

#include "training/modules/tensor_parallel.hpp"
#include "training/ops/activation.hpp"
#include "training/ops/elementwise.hpp"

namespace tutti::training {
namespace {

LinearOptions inner_options(const std::string& name, const ModelConfig& config) {
  return {.name = name,
          .in = config.hidden,
          .out = config.intermediate,
          .split = Split::columns,
          .bias = config.architecture == Architecture::gpt2,
          .deviation = config.initial_deviation};
}

// What is added to the residual stream begins the smaller, the more layers add to it.
// Source  Radford et al.: Language models are unsupervised multitask learners (2019).
LinearOptions outer_options(const std::string& name, const ModelConfig& config) {
  const double additions = 2 * static_cast<double>(config.layers);
  return {.name = name,
          .in = config.intermediate,
          .out = config.hidden,
          .split = Split::rows,
          .deviation = config.initial_deviation / std::sqrt(additions)};
}

}  // namespace

Mlp::Mlp(const std::string& name, const ModelConfig& config, Context& context)
    : context_(context),
      up_(inner_options(name + ".up_proj", config), context),
      down_(outer_options(name + ".down_proj", config), context) {
  if (config.architecture == Architecture::gpt2)
    bias_.emplace(name + ".down_proj", config.hidden, context);
  else
    gate_.emplace(inner_options(name + ".gate_proj", config), context);
}

Tensor Mlp::activate(const Saved& saved) const {
  const Tensor activated = context_.activation(saved.up_output.shape());
  if (gate_)
    swiglu(saved.gate_output, saved.up_output, activated);
  else
    gelu(saved.up_output, activated);
  return activated;
}

void Mlp::activate_backward(const Saved& saved, const Tensor& dactivated) const {
  const Tensor& gate = saved.gate_output;
  const Tensor& up = saved.up_output;
  if (gate_)
    swiglu_backward(gate, up, dactivated, gate, up);
  else
    gelu_backward(up, dactivated, up);
}

Tensor Mlp::forward(const Tensor& x, Kept& kept) {
  Saved& saved = kept.make<Saved>();
  const Tensor whole = enter_shared(context_, x);
  if (gate_) saved.gate_output = gate_->forward(whole, saved.gate);
  saved.up_output = up_.forward(whole, saved.up);
  const Tensor part = down_.forward(activate(saved), saved.down);
  if (recompute_) Linear::drop_input(saved.down);
  const Tensor y = leave_shared(context_, part);
  return bias_ ? bias_->forward(y, saved.bias) : y;
}

Tensor Mlp::backward_input(const Tensor& dy, Kept& kept) {
  Saved& saved = kept.get<Saved>();
  if (recompute_) Linear::give_input(saved.down, activate(saved));
  if (bias_) bias_->backward_input(dy, saved.bias);
  const Tensor dactivated = down_.backward_input(leave_shared_backward(context_, dy), saved.down);
  activate_backward(saved, dactivated);

  const Tensor dx = up_.backward_input(saved.up_output, saved.up);
  if (gate_) add_to(dx, gate_->backward_input(saved.gate_output, saved.gate));
  saved.gate_output = saved.up_output = Tensor();
  return enter_shared_backward(context_, dx);
}

void Mlp::backward_weight(Kept& kept) {
  Saved& saved = kept.get<Saved>();
  down_.backward_weight(saved.down);
  if (bias_) bias_->backward_weight(saved.bias);
  if (gate_) gate_->backward_weight(saved.gate);
  up_.backward_weight(saved.up);
  kept.clear();
}

void Mlp::visit(const ParameterVisitor& visitor) {
  if (gate_) gate_->visit(visitor);
  up_.visit(visitor);
  down_.visit(visitor);
  if (bias_) bias_->visit(visitor);
}

void Mlp::drop_input(Kept& kept) {
  Saved& saved = kept.get<Saved>();
  if (gate_) Linear::drop_input(saved.gate);
  Linear::drop_input(saved.up);
}

void Mlp::give_input(Kept& kept, const Tensor& x) {
  Saved& saved = kept.get<Saved>();
  const Tensor whole = enter_shared(context_, x);
  if (gate_) Linear::give_input(saved.gate, whole);
  Linear::give_input(saved.up, whole);
}

}  // namespace tutti::training
