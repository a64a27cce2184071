// norm.cc: see norm.hpp; the arithmetic is in ops/normalize.hpp.
#include "training/modules/norm.hpp"

#include "training/ops/elementwise.hpp"
#include "training/ops/normalize.hpp"

namespace tutti::training {

Norm::Norm(const std::string& name, const ModelConfig& config, Context& context)
    : context_(context),
      epsilon_(config.norm_epsilon),
      centred_(config.architecture == Architecture::gpt2),
      weight_(whole_parameter(name + ".weight", {config.hidden})),
      bias_(whole_parameter(name + ".bias", {config.hidden})) {
  weight_.initial.kind = Initial::Kind::ones;
  bias_.initial.kind = Initial::Kind::zeros;
  weight_.decays = bias_.decays = false;
  weight_.sharing = bias_.sharing = context.sequence_parallel ? Sharing::partial : Sharing::same;
}

Tensor Norm::forward(const Tensor& x, Kept& kept) {
  const Tensor y = context_.activation({x.rows(), x.columns()});
  const Tensor statistics = context_.wide_activation({x.rows(), 2});
  normalize(x, weight_.value, centred_ ? bias_.value : Tensor(), epsilon_, y, statistics);
  kept.make<Saved>() = {.x = x, .statistics = statistics, .dy = Tensor()};
  return y;
}

Tensor Norm::backward_input(const Tensor& dy, Kept& kept) {
  Saved& saved = kept.get<Saved>();
  saved.dy = dy;
  const Tensor dx = context_.activation({dy.rows(), dy.columns()});
  normalize_backward(saved.x, saved.statistics, weight_.value, centred_, dy, dx);
  return dx;
}

void Norm::backward_weight(Kept& kept) {
  const Saved& saved = kept.get<Saved>();
  normalize_backward_weight(saved.x, saved.statistics, saved.dy, weight_.gradient);
  if (centred_) add_column_sums(bias_.gradient, saved.dy);
  kept.clear();
}

void Norm::visit(const ParameterVisitor& visitor) {
  visitor(weight_);
  if (centred_) visitor(bias_);
}

}  // namespace tutti::training
