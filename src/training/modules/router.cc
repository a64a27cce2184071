// router.cc: see router.hpp.
#include "training/modules/router.hpp"

#include "training/tensor/convert.hpp"

namespace tutti::training {
namespace {

// A gradient of wide type as an operand of a product with activations.
Tensor of_activations_type(const Context& context, const Tensor& wide) {
  if (wide.type() == context.type) return wide;
  const Tensor narrow = context.activation(wide.shape());
  convert(wide, narrow);
  return narrow;
}

}  // namespace

Router::Router(const std::string& name, const ModelConfig& config, Context& context)
    : context_(context), experts_per_token_(config.experts_per_token) {
  weight_ = whole_parameter(name + ".weight", {config.experts, config.hidden});
  weight_.initial.deviation = config.initial_deviation;
}

Routing Router::forward(const Tensor& x, Kept& kept) {
  auto& saved = kept.make<Saved>();
  saved.x = x;
  const Tensor logits = context_.wide_activation({x.shape()[0], weight_.whole_shape[0]});
  if (logits.count() > 0)
    context_.gemm.multiply(x, MatrixView(weight_.value).transpose(), logits, false);
  saved.routing = choose_experts(logits, experts_per_token_, context_.arena);
  context_.balance_loss += balance_loss(saved.routing);
  return saved.routing;
}

Tensor Router::backward_input(const Tensor& dweights, Kept& kept) {
  auto& saved = kept.get<Saved>();
  const Tensor dlogits =
      choose_experts_backward(saved.routing, dweights, context_.balance_scale, context_.arena);
  saved.dlogits = of_activations_type(context_, dlogits);
  saved.routing = {};
  if (context_.tp.rank() > 0) return {};
  const Tensor dx = context_.activation({dlogits.shape()[0], weight_.whole_shape[1]});
  if (dx.count() > 0) context_.gemm.multiply(saved.dlogits, weight_.value, dx, false);
  return dx;
}

void Router::backward_weight(Kept& kept) {
  auto& saved = kept.get<Saved>();
  if (saved.x.count() > 0)
    context_.gemm.multiply(MatrixView(saved.dlogits).transpose(), saved.x, weight_.gradient, true);
  kept.clear();
}

void Router::drop_input(Kept& kept) { kept.get<Saved>().x = {}; }

void Router::give_input(Kept& kept, const Tensor& x) { kept.get<Saved>().x = x; }

void Router::visit(const ParameterVisitor& visitor) { visitor(weight_); }

}  // namespace tutti::training
