// stage.hpp: consecutive layers of a model, with the embedding before the first and the head after
// the last: all of a model, or a pipeline rank's part of it.
//
// Its *units* are the embedding, each block, and the head: what weights are fetched for, and whose
// gradients are sent away, as one. Who does that hears of it through UnitHooks.
//
// Knows nothing of other stages, of micro-batches' order, or of what hooks do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/modules/block.hpp"
#include "training/modules/embedding.hpp"
#include "training/modules/head.hpp"
#include "training/modules/module.hpp"

namespace tutti::training {

// Layers [begin, end) of the model.
struct StageLayers {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool has_embedding = true;
  bool has_head = true;
};

// What is computed again in backward instead of being kept. `full`: of `every` consecutive blocks
// only what went into the first is kept; backward makes their forwards again, all at once.
//
// Source  Chen et al.: Training deep nets with sublinear memory cost (2016).
struct RecomputePolicy {
  Recompute what = Recompute::none;
  std::int64_t every = 1;  // of `full`, counted within a stage
};

// Told which unit is about to run, and which has run.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void before_forward(std::size_t) {}
  virtual void after_forward(std::size_t) {}
  virtual void before_recompute(std::size_t) {}  // a forward that is made again, for backward
  virtual void before_backward_input(std::size_t) {}
  virtual void after_backward_input(std::size_t) {}
  virtual void before_backward_weight(std::size_t) {}
  virtual void after_backward_weight(std::size_t) {}
};

// What backward of a stage is asked to do.
enum class Backward : unsigned char { both, input, weight };

// One micro-batch on its way through a stage.
struct MicroBatch {
  std::span<const std::int32_t> tokens;   // of a stage with an embedding
  std::span<const std::int32_t> targets;  // of one with a head
  Tensor x;                               // into a stage without an embedding
  Tensor y;                               // out of one without a head
  Tensor dy;                              // the gradient of y, before backward
  Tensor dx;                              // the gradient of x, after it
  Loss loss;                              // of a stage with a head
  double loss_scale = 1;                  // the gradient of what is minimised by the sum of losses

  Kept embedding, head;
  std::vector<Kept> blocks;
  std::vector<Tensor> segments;  // what went into blocks that are computed again
};

class Stage {
 public:
  Stage(const ModelConfig& config, const StageLayers& layers, const RecomputePolicy& recompute,
        Context& context);

  const StageLayers& layers() const { return layers_; }
  std::size_t units() const;
  std::string unit_name(std::size_t unit) const;
  bool is_block(std::size_t unit) const { return !is_embedding(unit) && !is_head(unit); }
  void visit(std::size_t unit, const ParameterVisitor& visitor);
  void visit(const ParameterVisitor& visitor);  // all units

  void forward(MicroBatch& batch, UnitHooks& hooks);
  // `both` is `input` and `weight` of each unit in turn. Requires  forward; `input` before
  // `weight`.
  void backward(MicroBatch& batch, Backward what, UnitHooks& hooks);

  // The logits of tokens, [rows, vocabulary]: all of a model only.
  Tensor logits(std::span<const std::int32_t> tokens);

  // For proofs.
  std::int64_t block_forward_calls() const;
  const Block& block(std::int64_t number) const {
    return *blocks_[static_cast<std::size_t>(number - layers_.begin)];
  }

 private:
  std::size_t first_block() const { return layers_.has_embedding ? 1 : 0; }
  bool is_embedding(std::size_t unit) const { return layers_.has_embedding && unit == 0; }
  bool is_head(std::size_t unit) const { return layers_.has_head && unit + 1 == units(); }
  void tie();
  bool recomputes() const { return recompute_.what == Recompute::full; }
  Tensor forward_block(std::size_t block, const Tensor& x, MicroBatch& batch);
  void forward_again(std::size_t block, MicroBatch& batch, UnitHooks& hooks);
  void backward_input(std::size_t unit, MicroBatch& batch, Tensor& gradient);
  void backward_weight(std::size_t unit, MicroBatch& batch);

  StageLayers layers_;
  RecomputePolicy recompute_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Head> head_;
};

// The layers of stage `stage` of `stages`: as many each as can be, the first ones one more.
StageLayers stage_layers(std::int64_t layers, int stage, int stages);

}  // namespace tutti::training
