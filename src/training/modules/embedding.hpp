// embedding.hpp: tokens to vectors, and gpt2's positions. Under tensor parallelism each rank has a
// range of the vocabulary (its part may be shorter on the last ranks), looks up what it has, and
// the sum over the ranks is the result.
#pragma once

#include <span>

#include "training/architecture/config.hpp"
#include "training/modules/module.hpp"

namespace tutti::training {

// Rank `rank` of `size` has tokens [begin, end) of the vocabulary: ceil(vocabulary / size) each,
// the last ones fewer, or none.
struct VocabularyPart {
  std::int64_t begin = 0, end = 0;
};
VocabularyPart vocabulary_part(std::int64_t vocabulary, int rank, int size);

class Embedding final {
 public:
  Embedding(const ModelConfig& config, Context& context);

  // tokens: [rows], each in [0, vocabulary); the result: [local rows, hidden].
  Tensor forward(std::span<const std::int32_t> tokens, Kept& kept);
  // There is no gradient of tokens, so both halves of backward are one: `kept` is empty after it.
  void backward(const Tensor& dy, Kept& kept);

  void visit(const ParameterVisitor& visitor);
  Parameter& weight() { return weight_; }  // "model.embed_tokens.weight"

 private:
  Context& context_;
  std::int64_t vocabulary_;
  Parameter weight_;
  Parameter positions_;  // of gpt2: "model.embed_positions.weight"
  bool has_positions_;
};

}  // namespace tutti::training
