// linear.cc: see linear.hpp. Knows nothing of communication.
#include "training/modules/linear.hpp"

#include "training/ops/elementwise.hpp"

namespace tutti::training {
namespace {

// This rank's share of an extent.
Part even_part(const Parameter& parameter, std::size_t dimension, const Axis& tp) {
  const std::int64_t extent = parameter.whole_shape[dimension];
  TRAINING_CHECK(extent % tp.size() == 0, "the tensor-parallel size divides what it splits");
  const std::int64_t length = extent / tp.size();
  return {dimension, tp.rank() * length, length};
}

Parameter bias_parameter(const std::string& name, std::int64_t size) {
  Parameter made = whole_parameter(name + ".bias", {size});
  made.initial.kind = Initial::Kind::zeros;
  made.decays = false;
  return made;
}

}  // namespace

Linear::Linear(const LinearOptions& options, Context& context)
    : context_(context),
      weight_(whole_parameter(options.name + ".weight", {options.out, options.in})),
      bias_(bias_parameter(options.name, options.out)),
      has_bias_(options.bias) {
  TRAINING_CHECK(!(options.bias && options.split == Split::rows),
                 "a bias after a split by rows is added after the sum");
  weight_.initial.deviation = options.deviation;
  weight_.sharing = bias_.sharing = options.sharing;
  weight_.expert = bias_.expert = options.expert;
  if (options.split == Split::none) return;
  weight_.sharing = bias_.sharing = Sharing::split;
  weight_.copies = bias_.copies = options.copies;
  if (options.split == Split::rows)
    weight_.part = even_part(weight_, 1, context.tp);
  else
    weight_.part = bias_.part = options.rows ? *options.rows : even_part(weight_, 0, context.tp);
}

Tensor Linear::forward(const Tensor& x, Kept& kept) {
  kept.make<Saved>().x = x;
  const Tensor y = context_.activation({x.rows(), weight_.value.rows()});
  context_.gemm.multiply(x, MatrixView(weight_.value).transpose(), y, false);
  if (has_bias_) add_row(y, bias_.value);
  return y;
}

Tensor Linear::backward_input(const Tensor& dy, Kept& kept) {
  kept.get<Saved>().dy = dy;
  const Tensor dx = context_.activation({dy.rows(), weight_.value.columns()});
  context_.gemm.multiply(dy, weight_.value, dx, false);
  return dx;
}

void Linear::backward_weight(Kept& kept) {
  const Saved& saved = kept.get<Saved>();
  context_.gemm.multiply(MatrixView(saved.dy).transpose(), saved.x, weight_.gradient, true);
  if (has_bias_) add_column_sums(bias_.gradient, saved.dy);
  kept.clear();
}

void Linear::visit(const ParameterVisitor& visitor) {
  visitor(weight_);
  if (has_bias_) visitor(bias_);
}

Bias::Bias(const std::string& name, std::int64_t size, const Context& context)
    : bias_(bias_parameter(name, size)) {
  bias_.sharing = context.sequence_parallel ? Sharing::partial : Sharing::same;
}

Tensor Bias::forward(const Tensor& x, Kept& kept) {
  kept.make<Saved>();
  add_row(x, bias_.value);
  return x;
}

Tensor Bias::backward_input(const Tensor& dy, Kept& kept) {
  kept.get<Saved>().dy = dy;
  return dy;
}

void Bias::backward_weight(Kept& kept) {
  add_column_sums(bias_.gradient, kept.get<Saved>().dy);
  kept.clear();
}

void Bias::visit(const ParameterVisitor& visitor) { visitor(bias_); }

}  // namespace tutti::training
