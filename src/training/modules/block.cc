// block.cc: see block.hpp. What each half computes is in its module; this is the sum around them,
// and what of it is kept.
#include "training/modules/block.hpp"

#include <string>

#include "training/modules/attention.hpp"
#include "training/modules/mlp.hpp"
#include "training/modules/moe.hpp"
#include "training/modules/norm.hpp"
#include "training/ops/elementwise.hpp"

namespace tutti::training {

struct Block::Parts {
  Parts(const std::string& name, const ModelConfig& config, Context& context)
      : input_norm(name + ".input_layernorm", config, context),
        attention(name + ".self_attn", config, context),
        post_norm(name + ".post_attention_layernorm", config, context) {
    if (config.architecture == Architecture::mixtral)
      mixture = std::make_unique<MixtureOfExperts>(name + ".block_sparse_moe", config, context);
    else
      mlp = std::make_unique<Mlp>(name + ".mlp", config, context);
  }

  Module& second_half() {
    return mixture ? static_cast<Module&>(*mixture) : static_cast<Module&>(*mlp);
  }

  Norm input_norm;
  Attention attention;
  Norm post_norm;
  std::unique_ptr<Mlp> mlp;                   // one of the two
  std::unique_ptr<MixtureOfExperts> mixture;  // of mixtral
};

struct Block::Saved {
  Kept input_norm, attention, post_norm, second_half;
  Tensor x;       // for recomputation
  Tensor middle;  // x + attention; for selective recomputation
};

Block::Block(const ModelConfig& config, std::int64_t layer, Context& context, Recompute recompute)
    : context_(context),
      recompute_(recompute),
      parts_(std::make_unique<Parts>("model.layers." + std::to_string(layer), config, context)) {
  const bool selective = recompute == Recompute::selective;
  if (parts_->mixture)
    parts_->mixture->set_recompute(selective);
  else
    parts_->mlp->set_recompute(selective);
}

Block::~Block() = default;

std::int64_t Block::forward_calls() const { return forward_calls_; }

const MixtureOfExperts* Block::mixture() const { return parts_->mixture.get(); }

Tensor Block::run(const Tensor& x, Saved& saved) {
  ++forward_calls_;
  Parts& parts = *parts_;
  const bool selective = recompute_ == Recompute::selective;
  const Tensor middle =
      parts.attention.forward(parts.input_norm.forward(x, saved.input_norm), saved.attention);
  add_to(middle, x);
  if (selective) parts.attention.drop_input(saved.attention);
  const Tensor y = parts.second_half().forward(parts.post_norm.forward(middle, saved.post_norm),
                                               saved.second_half);
  add_to(y, middle);
  if (selective) {
    if (parts.mixture)
      parts.mixture->drop_input(saved.second_half);
    else
      parts.mlp->drop_input(saved.second_half);
    saved.x = x;
    saved.middle = middle;
  }
  return y;
}

Tensor Block::forward(const Tensor& x, Kept& kept) {
  auto& saved = kept.make<Saved>();
  if (recompute_ != Recompute::full) return run(x, saved);
  saved.x = x;
  Saved forgotten;
  return run(x, forgotten);
}

Tensor Block::backward_second_half(const Tensor& dy, Saved& saved) {
  Parts& parts = *parts_;
  const Tensor dnormed = parts.second_half().backward_input(dy, saved.second_half);
  if (saved.middle.empty()) return parts.post_norm.backward_input(dnormed, saved.post_norm);
  Kept known;
  const Tensor normed = parts.post_norm.forward(saved.middle, known);
  if (parts.mixture)
    parts.mixture->give_input(saved.second_half, normed);
  else
    parts.mlp->give_input(saved.second_half, normed);
  saved.middle = {};
  return parts.post_norm.backward_input(dnormed, saved.post_norm);
}

Tensor Block::backward_input(const Tensor& dy, Kept& kept) {
  Parts& parts = *parts_;
  auto& saved = kept.get<Saved>();
  if (recompute_ == Recompute::full) {
    const double balance_loss = context_.balance_loss;  // has this layer's share already
    run(saved.x, saved);
    context_.balance_loss = balance_loss;
  }
  const Tensor dmiddle = backward_second_half(dy, saved);
  add_to(dmiddle, dy);
  const Tensor dnormed = parts.attention.backward_input(dmiddle, saved.attention);
  if (recompute_ == Recompute::selective) {
    Kept known;
    parts.attention.give_input(saved.attention, parts.input_norm.forward(saved.x, known));
  }
  saved.x = {};
  const Tensor dx = parts.input_norm.backward_input(dnormed, saved.input_norm);
  add_to(dx, dmiddle);
  return dx;
}

void Block::backward_weight(Kept& kept) {
  Parts& parts = *parts_;
  auto& saved = kept.get<Saved>();
  parts.input_norm.backward_weight(saved.input_norm);
  parts.attention.backward_weight(saved.attention);
  parts.post_norm.backward_weight(saved.post_norm);
  parts.second_half().backward_weight(saved.second_half);
  kept.clear();
}

void Block::visit(const ParameterVisitor& visitor) {
  parts_->input_norm.visit(visitor);
  parts_->attention.visit(visitor);
  parts_->post_norm.visit(visitor);
  parts_->second_half().visit(visitor);
}

}  // namespace tutti::training
