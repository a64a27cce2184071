// stage.cc: see stage.hpp.
#include "training/model/stage.hpp"

#include <algorithm>
#include <utility>

namespace tutti::training {

Stage::Stage(const ModelConfig& config, const StageLayers& layers, const RecomputePolicy& recompute,
             Context& context)
    : layers_(layers), recompute_(recompute) {
  const Recompute within = recomputes() ? Recompute::none : recompute.what;
  if (layers.has_embedding) embedding_ = std::make_unique<Embedding>(config, context);
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer)
    blocks_.push_back(std::make_unique<Block>(config, layer, context, within));
  if (layers.has_head) head_ = std::make_unique<Head>(config, context);
  if (config.tied) tie();
}

// Where the embedding is on another stage, the head has a copy of its weight.
void Stage::tie() {
  if (embedding_ && head_) {
    head_->weight().tied_to = &embedding_->weight();
  } else if (embedding_) {
    embedding_->weight().on_two_stages = true;
  } else if (head_) {
    Parameter& weight = head_->weight();
    weight.name = "model.embed_tokens.weight";
    weight.on_two_stages = weight.duplicate = true;
  }
}

std::size_t Stage::units() const {
  return first_block() + blocks_.size() + (layers_.has_head ? 1 : 0);
}

std::string Stage::unit_name(std::size_t unit) const {
  if (is_embedding(unit)) return "embedding";
  if (is_head(unit)) return "head";
  return "block " + std::to_string(layers_.begin + static_cast<std::int64_t>(unit - first_block()));
}

void Stage::visit(std::size_t unit, const ParameterVisitor& visitor) {
  if (is_embedding(unit))
    embedding_->visit(visitor);
  else if (is_head(unit))
    head_->visit(visitor);
  else
    blocks_[unit - first_block()]->visit(visitor);
}

void Stage::visit(const ParameterVisitor& visitor) {
  for (std::size_t unit = 0; unit < units(); ++unit) visit(unit, visitor);
}

void Stage::forward(MicroBatch& batch, UnitHooks& hooks) {
  batch.blocks.resize(blocks_.size());
  Tensor x = std::move(batch.x);
  for (std::size_t unit = 0; unit < units(); ++unit) {
    hooks.before_forward(unit);
    if (is_embedding(unit)) {
      x = embedding_->forward(batch.tokens, batch.embedding);
    } else if (is_head(unit)) {
      batch.loss = head_->forward(x, batch.targets, batch.head);
      x = {};
    } else {
      x = forward_block(unit - first_block(), x, batch);
    }
    hooks.after_forward(unit);
  }
  batch.y = std::move(x);
}

Tensor Stage::forward_block(std::size_t block, const Tensor& x, MicroBatch& batch) {
  Kept& kept = batch.blocks[block];
  if (recomputes() && block % static_cast<std::size_t>(recompute_.every) == 0)
    batch.segments.push_back(x);
  Tensor y = blocks_[block]->forward(x, kept);
  if (recomputes()) kept.clear();
  return y;
}

// Backward has come to the last block of a segment: all of the segment's forwards, kept this time.
void Stage::forward_again(std::size_t block, MicroBatch& batch, UnitHooks& hooks) {
  const auto every = static_cast<std::size_t>(recompute_.every);
  Tensor x = std::move(batch.segments.back());
  batch.segments.pop_back();
  for (std::size_t again = block / every * every; again <= block; ++again) {
    hooks.before_recompute(first_block() + again);
    x = blocks_[again]->forward(x, batch.blocks[again]);
  }
}

void Stage::backward(MicroBatch& batch, Backward what, UnitHooks& hooks) {
  Tensor gradient = std::move(batch.dy);
  for (std::size_t unit = units(); unit-- > 0;) {
    if (what != Backward::weight) {
      hooks.before_backward_input(unit);
      if (is_block(unit) && batch.blocks[unit - first_block()].empty())
        forward_again(unit - first_block(), batch, hooks);
      backward_input(unit, batch, gradient);
      hooks.after_backward_input(unit);
    }
    if (what != Backward::input) {
      hooks.before_backward_weight(unit);
      backward_weight(unit, batch);
      hooks.after_backward_weight(unit);
    }
  }
  if (what != Backward::weight && !embedding_) batch.dx = std::move(gradient);
}

// `gradient` is of the unit's output before, and of its input after. The embedding has no gradient
// of its input: the one of its output waits for backward_weight.
void Stage::backward_input(std::size_t unit, MicroBatch& batch, Tensor& gradient) {
  if (is_embedding(unit)) {
    batch.dx = std::move(gradient);
  } else if (is_head(unit)) {
    gradient = head_->backward_input(batch.loss_scale, batch.head);
  } else {
    const std::size_t block = unit - first_block();
    gradient = blocks_[block]->backward_input(gradient, batch.blocks[block]);
  }
}

void Stage::backward_weight(std::size_t unit, MicroBatch& batch) {
  if (is_embedding(unit))
    embedding_->backward(std::exchange(batch.dx, {}), batch.embedding);
  else if (is_head(unit))
    head_->backward_weight(batch.head);
  else
    blocks_[unit - first_block()]->backward_weight(batch.blocks[unit - first_block()]);
}

Tensor Stage::logits(std::span<const std::int32_t> tokens) {
  TRAINING_CHECK(embedding_ && head_, "logits are of a whole model");
  Kept kept;
  Tensor x = embedding_->forward(tokens, kept);
  for (const auto& block : blocks_) {
    kept.clear();
    x = block->forward(x, kept);
  }
  return head_->logits(x);
}

std::int64_t Stage::block_forward_calls() const {
  std::int64_t calls = 0;
  for (const auto& block : blocks_) calls += block->forward_calls();
  return calls;
}

StageLayers stage_layers(std::int64_t layers, int stage, int stages) {
  const std::int64_t each = layers / stages, more = layers % stages;
  const std::int64_t begin = stage * each + std::min<std::int64_t>(stage, more);
  return {begin, begin + each + (stage < more ? 1 : 0), stage == 0, stage + 1 == stages};
}

}  // namespace tutti::training
