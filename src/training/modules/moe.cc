// moe.cc: see moe.hpp.
#include "training/modules/moe.hpp"

#include "training/modules/tensor_parallel.hpp"
#include "training/ops/elementwise.hpp"
#include "training/ops/routing.hpp"

namespace tutti::training {

MixtureOfExperts::MixtureOfExperts(const std::string& name, const ModelConfig& config,
                                   Context& context)
    : context_(context),
      capacity_factor_(config.capacity_factor),
      router_(name + ".gate", config, context),
      experts_(name + ".experts", config, context) {}

Tensor MixtureOfExperts::forward(const Tensor& x, Kept& kept) {
  auto& saved = kept.make<Saved>();
  const Tensor whole = enter_shared(context_, x);
  const Routing routing = router_.forward(whole, saved.router);
  saved.weights = routing.weights;
  saved.handle = plan_dispatch(context_, routing, expert_capacity(routing, capacity_factor_));
  dropped_ = saved.handle.dropped;
  load_ = routing.load();
  const Tensor arrived = dispatch(context_, whole, saved.handle);
  const Tensor made = experts_.forward(arrived, saved.handle.arrived, saved.experts);
  saved.placed = bring_back(context_, made, saved.handle);
  const Tensor y = context_.activation(whole.shape());
  sum_slots(saved.placed, saved.handle.placement, saved.weights, y);
  return leave_shared(context_, y);
}

Tensor MixtureOfExperts::backward_input(const Tensor& dy, Kept& kept) {
  auto& saved = kept.get<Saved>();
  const Tensor whole = leave_shared_backward(context_, dy);
  // What is here of the experts' outputs is a part of a sum over the tensor-parallel axis, and so
  // is its product with dy. The router is the same on all ranks and needs the sum.
  const Tensor dweights = context_.wide_activation(saved.weights.shape());
  slot_products(saved.placed, saved.handle.placement, whole, dweights);
  context_.tp.all_reduce_sum(dweights);
  saved.placed = {};

  const Tensor dmade = dispatch(context_, whole, saved.handle, saved.weights);
  const Tensor darrived = experts_.backward_input(dmade, saved.experts);
  const Tensor dx = combine(context_, darrived, saved.handle);
  const Tensor router_dx = router_.backward_input(dweights, saved.router);
  if (!router_dx.empty()) add_to(dx, router_dx);
  return enter_shared_backward(context_, dx);
}

void MixtureOfExperts::backward_weight(Kept& kept) {
  auto& saved = kept.get<Saved>();
  router_.backward_weight(saved.router);
  experts_.backward_weight(saved.experts);
  kept.clear();
}

void MixtureOfExperts::visit(const ParameterVisitor& visitor) {
  router_.visit(visitor);
  experts_.visit(visitor);
}

void MixtureOfExperts::drop_input(Kept& kept) { router_.drop_input(kept.get<Saved>().router); }

void MixtureOfExperts::give_input(Kept& kept, const Tensor& x) {
  router_.give_input(kept.get<Saved>().router, enter_shared(context_, x));
}

}  // namespace tutti::training
