// attention.cc: see attention.hpp. Knows nothing of the layer around it.
#include "training/modules/attention.hpp"

#include <algorithm>
#include <cmath>

#include "training/modules/tensor_parallel.hpp"
#include "training/ops/elementwise.hpp"

namespace tutti::training {
namespace {

LinearOptions query_options(const std::string& name, const ModelConfig& config) {
  return {.name = name + ".q_proj",
          .in = config.hidden,
          .out = config.heads * config.head_size,
          .split = Split::columns,
          .bias = config.architecture == Architecture::gpt2,
          .deviation = config.initial_deviation};
}

// Of keys or values.
LinearOptions kv_options(const std::string& name, const ModelConfig& config, const Axis& tp) {
  LinearOptions options = {.name = name,
                           .in = config.hidden,
                           .out = config.kv_heads * config.head_size,
                           .split = Split::columns,
                           .bias = config.architecture == Architecture::gpt2,
                           .deviation = config.initial_deviation};
  if (config.kv_heads >= tp.size()) return options;
  TRAINING_CHECK(tp.size() % config.kv_heads == 0, "as many ranks for each key-value head");
  options.copies = tp.size() / static_cast<int>(config.kv_heads);
  options.rows = Part{0, tp.rank() / options.copies * config.head_size, config.head_size};
  return options;
}

// Initial values as of Mlp's last layer: both are added to the residual stream.
LinearOptions out_options(const std::string& name, const ModelConfig& config) {
  const double additions = 2 * static_cast<double>(config.layers);
  return {.name = name + ".o_proj",
          .in = config.heads * config.head_size,
          .out = config.hidden,
          .split = Split::rows,
          .deviation = config.initial_deviation / std::sqrt(additions)};
}

}  // namespace

Attention::Attention(const std::string& name, const ModelConfig& config, Context& context)
    : context_(context),
      heads_(config.heads / context.tp.size()),
      kv_heads_(std::max<std::int64_t>(config.kv_heads / context.tp.size(), 1)),
      head_size_(config.head_size),
      q_proj_(query_options(name, config), context),
      k_proj_(kv_options(name + ".k_proj", config, context.tp), context),
      v_proj_(kv_options(name + ".v_proj", config, context.tp), context),
      o_proj_(out_options(name, config), context) {
  TRAINING_CHECK(config.heads % context.tp.size() == 0, "tensor-parallel ranks have whole heads");
  if (config.architecture == Architecture::gpt2)
    bias_ = std::make_unique<Bias>(name + ".o_proj", config.hidden, context);
  else
    positions_ = std::make_unique<RotaryPositions>(head_size_, config.rope_theta, context.type);
}

AttentionShape Attention::shape() const {
  return {context_.batch, context_.sequence, heads_, kv_heads_, head_size_};
}

Tensor Attention::forward(const Tensor& x, Kept& kept) {
  auto& saved = kept.make<Saved>();
  const Tensor whole = enter_shared(context_, x);
  saved.input.q = q_proj_.forward(whole, saved.q_proj);
  saved.input.k = k_proj_.forward(whole, saved.k_proj);
  saved.input.v = v_proj_.forward(whole, saved.v_proj);
  if (positions_) {
    positions_->rotate(saved.input.q, context_.sequence);
    positions_->rotate(saved.input.k, context_.sequence);
  }
  saved.output = attention_forward(shape(), saved.input, context_.arena);
  const Tensor y = leave_shared(context_, o_proj_.forward(saved.output.out, saved.o_proj));
  return bias_ ? bias_->forward(y, saved.bias) : y;
}

Tensor Attention::backward_input(const Tensor& dy, Kept& kept) {
  auto& saved = kept.get<Saved>();
  if (bias_) bias_->backward_input(dy, saved.bias);
  const Tensor dout = o_proj_.backward_input(leave_shared_backward(context_, dy), saved.o_proj);
  const AttentionInput gradients =
      attention_backward(shape(), saved.input, saved.output, dout, context_.arena);
  saved.input = {};
  saved.output = {};
  if (positions_) {
    positions_->rotate_backward(gradients.q, context_.sequence);
    positions_->rotate_backward(gradients.k, context_.sequence);
  }
  const Tensor dx = q_proj_.backward_input(gradients.q, saved.q_proj);
  add_to(dx, k_proj_.backward_input(gradients.k, saved.k_proj));
  add_to(dx, v_proj_.backward_input(gradients.v, saved.v_proj));
  return enter_shared_backward(context_, dx);
}

void Attention::backward_weight(Kept& kept) {
  auto& saved = kept.get<Saved>();
  q_proj_.backward_weight(saved.q_proj);
  k_proj_.backward_weight(saved.k_proj);
  v_proj_.backward_weight(saved.v_proj);
  o_proj_.backward_weight(saved.o_proj);
  if (bias_) bias_->backward_weight(saved.bias);
  kept.clear();
}

void Attention::visit(const ParameterVisitor& visitor) {
  for (Linear* linear : {&q_proj_, &k_proj_, &v_proj_, &o_proj_}) linear->visit(visitor);
  if (bias_) bias_->visit(visitor);
}

void Attention::drop_input(Kept& kept) {
  auto& saved = kept.get<Saved>();
  for (Kept* projection : {&saved.q_proj, &saved.k_proj, &saved.v_proj})
    Linear::drop_input(*projection);
}

void Attention::give_input(Kept& kept, const Tensor& x) {
  auto& saved = kept.get<Saved>();
  const Tensor whole = enter_shared(context_, x);
  for (Kept* projection : {&saved.q_proj, &saved.k_proj, &saved.v_proj})
    Linear::give_input(*projection, whole);
}

}  // namespace tutti::training
