// embedding.cc: see embedding.hpp; rows are looked up by ops/lookup.hpp.
#include "training/modules/embedding.hpp"

#include <algorithm>
#include <vector>

#include "training/modules/tensor_parallel.hpp"
#include "training/ops/lookup.hpp"

namespace tutti::training {
namespace {

struct Saved {
  std::vector<std::int64_t> rows;  // of this rank's part of the table; others than it has for the
                                   // tokens of other ranks
};

// The position of each row that this rank has between tensor-parallel parts.
std::vector<std::int64_t> local_positions(const Context& context) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(context.local_rows()));
  std::int64_t row = context.sequence_parallel ? context.tp.rank() * context.local_rows() : 0;
  for (std::int64_t& position : positions) position = row++ % context.sequence;
  return positions;
}

}  // namespace

VocabularyPart vocabulary_part(std::int64_t vocabulary, int rank, int size) {
  const std::int64_t each = (vocabulary + size - 1) / size;
  return {.begin = std::min(rank * each, vocabulary),
          .end = std::min((rank + 1) * each, vocabulary)};
}

Embedding::Embedding(const ModelConfig& config, Context& context)
    : context_(context),
      vocabulary_(config.vocabulary),
      weight_(whole_parameter("model.embed_tokens.weight", {config.vocabulary, config.hidden})),
      positions_(
          whole_parameter("model.embed_positions.weight", {config.positions, config.hidden})),
      has_positions_(config.architecture == Architecture::gpt2) {
  const VocabularyPart part =
      vocabulary_part(config.vocabulary, context.tp.rank(), context.tp.size());
  weight_.part = {0, part.begin, part.end - part.begin};
  weight_.sharing = Sharing::split;
  weight_.initial.deviation = positions_.initial.deviation = config.initial_deviation;
  positions_.sharing = context.sequence_parallel ? Sharing::partial : Sharing::same;
}

Tensor Embedding::forward(std::span<const std::int32_t> tokens, Kept& kept) {
  TRAINING_CHECK(static_cast<std::int64_t>(tokens.size()) == context_.rows(),
                 "a token for each row");
  std::vector<std::int64_t>& rows = kept.make<Saved>().rows;
  for (const std::int32_t token : tokens) {
    TRAINING_CHECK(token >= 0 && token < vocabulary_, "a token outside of the vocabulary");
    rows.push_back(token - weight_.part.begin);
  }
  const Tensor found = context_.activation({context_.rows(), weight_.whole_shape[1]});
  gather_rows(weight_.value, rows, found);
  const Tensor y = leave_shared(context_, found);
  if (has_positions_) {
    TRAINING_CHECK(context_.sequence <= positions_.whole_shape[0],
                   "a sequence of the model's size");
    add_gathered_rows(positions_.value, local_positions(context_), y);
  }
  return y;
}

void Embedding::backward(const Tensor& dy, Kept& kept) {
  if (has_positions_) scatter_add_rows(dy, local_positions(context_), positions_.gradient);
  const Tensor whole = leave_shared_backward(context_, dy);
  scatter_add_rows(whole, kept.get<Saved>().rows, weight_.gradient);
  kept.clear();
}

void Embedding::visit(const ParameterVisitor& visitor) {
  visitor(weight_);
  if (has_positions_) visitor(positions_);
}

}  // namespace tutti::training
