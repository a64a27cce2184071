// head.cc: see head.hpp. Logits are computed for some rows at a time, because they are the largest
// activation of most models; what is kept of them is their exponentials, in the compute type, which
// backward makes gradients of in place.
//
// Each rank takes exponentials relative to its own maximum, so that all rows' three numbers are
// exchanged at once, at the end.
#include "training/modules/head.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "training/modules/tensor_parallel.hpp"
#include "training/ops/softmax_loss.hpp"

namespace tutti::training {
namespace {

struct Saved {
  Kept norm;
  Tensor x;             // what the logits were computed of, [rows, hidden]
  Tensor exponentials;  // [rows, this rank's vocabulary]; after backward_input, logits' gradients
  Tensor factors;       // [rows]: what makes probabilities of exponentials; until backward_input
  std::vector<std::int32_t> targets;
};

// Enough rows for products to be quick, and else about eight megabytes of float32.
std::int64_t rows_at_a_time(std::int64_t columns) {
  constexpr std::int64_t kElements = std::int64_t{1} << 21, kLeast = 128;
  return std::max(kLeast, kElements / std::max<std::int64_t>(1, columns));
}

// What a rank knows of each row, and then what all know.
struct RowNumbers {
  RowNumbers(const Context& context, std::int64_t rows)
      : maxima(context.wide_activation({rows})), sums(context.wide_activation({2, rows})) {
    sums.clear();
  }

  Tensor maxima;
  Tensor sums;  // [2, rows]: of exponentials; and the target's logit, 0 if it is elsewhere
};

// Of rows whose targets these are. `first` is the vocabulary's number of column 0.
void note_target_logits(const Tensor& logits, std::span<const std::int32_t> targets,
                        std::int64_t first, const Tensor& noted) {
  visit_wide(logits.type(), [&](auto zero) {
    using W = decltype(zero);
    const W* row = logits.as<W>();
    for (std::size_t r = 0; r < targets.size(); ++r, row += logits.columns())
      if (targets[r] >= first && targets[r] < first + logits.columns())
        noted.as<W>()[r] = row[targets[r] - first];
  });
}

// Exchanges the numbers. Returns by what the exponentials that this rank took relative to its own
// maximum are multiplied to be relative to that of all; 0 where it has nothing but -infinity.
Tensor exchange(const Context& context, const RowNumbers& numbers) {
  const std::int64_t rows = numbers.maxima.count();
  const Tensor factors = context.wide_activation({rows});
  std::memcpy(factors.data(), numbers.maxima.data(), factors.bytes());
  context.tp.all_reduce_max(numbers.maxima);
  visit_wide(factors.type(), [&](auto zero) {
    using W = decltype(zero);
    for (std::int64_t r = 0; r < rows; ++r) {
      W& factor = factors.as<W>()[r];
      factor = std::exp(factor - numbers.maxima.as<W>()[r]);
      numbers.sums.as<W>()[r] *= factor;
    }
  });
  context.tp.all_reduce_sum(numbers.sums);
  return factors;
}

// Adds up the losses, and makes each factor one that makes probabilities of exponentials.
Loss finish(const RowNumbers& numbers, std::span<const std::int32_t> targets,
            const Tensor& factors) {
  Loss loss;
  visit_wide(factors.type(), [&](auto zero) {
    using W = decltype(zero);
    const W* const maxima = numbers.maxima.as<W>();
    const W* const sums = numbers.sums.as<W>();
    const W* const logits = sums + targets.size();
    for (std::size_t r = 0; r < targets.size(); ++r) {
      factors.as<W>()[r] /= sums[r];
      if (targets[r] == kIgnored) continue;
      loss.sum += std::log(static_cast<double>(sums[r])) + static_cast<double>(maxima[r]) -
                  static_cast<double>(logits[r]);
      ++loss.count;
    }
  });
  return loss;
}

// The first columns of `part`, [1, rows, ...], become columns `where` of `whole`.
void copy_columns(const Tensor& part, VocabularyPart where, const Tensor& whole) {
  const std::size_t element = size_of(whole.type());
  const auto bytes = [element](std::int64_t count) {
    return static_cast<std::size_t>(count) * element;
  };
  for (std::int64_t r = 0; r < whole.rows(); ++r)
    std::memcpy(whole.data() + bytes(r * whole.columns() + where.begin),
                part.data() + bytes(r * part.columns()), bytes(where.end - where.begin));
}

const Tensor& value_of(const Parameter& parameter) {
  return parameter.tied_to ? parameter.tied_to->value : parameter.value;
}

}  // namespace

Head::Head(const ModelConfig& config, Context& context)
    : context_(context),
      vocabulary_(config.vocabulary),
      part_(vocabulary_part(config.vocabulary, context.tp.rank(), context.tp.size())),
      norm_("model.norm", config, context),
      weight_(whole_parameter("lm_head.weight", {config.vocabulary, config.hidden})) {
  weight_.part = {0, part_.begin, part_.end - part_.begin};
  weight_.sharing = Sharing::split;
  weight_.initial.deviation = config.initial_deviation;
}

Loss Head::forward(const Tensor& x, std::span<const std::int32_t> targets, Kept& kept) {
  const std::int64_t rows = context_.rows(), columns = part_.end - part_.begin;
  TRAINING_CHECK(static_cast<std::int64_t>(targets.size()) == rows, "a target for each row");
  for (const std::int32_t target : targets)
    TRAINING_CHECK(target >= kIgnored && target < vocabulary_, "a target is of the vocabulary");
  Saved& saved = kept.make<Saved>();
  saved.targets.assign(targets.begin(), targets.end());
  saved.x = enter_shared(context_, norm_.forward(x, saved.norm));
  saved.exponentials = context_.activation({rows, columns});

  RowNumbers numbers(context_, rows);
  const std::int64_t most = rows_at_a_time(columns);
  for (std::int64_t begin = 0; begin < rows; begin += most) {
    const std::int64_t count = std::min(most, rows - begin);
    const Tensor logits = context_.wide_activation({count, columns});
    multiply_by_weight(saved.x.part(begin, count), logits);
    exponentials_of_rows(logits, saved.exponentials.part(begin, count),
                         numbers.maxima.elements(begin, count),
                         numbers.sums.elements(begin, count));
    note_target_logits(
        logits, targets.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
        part_.begin, numbers.sums.elements(rows + begin, count));
  }
  saved.factors = exchange(context_, numbers);
  return finish(numbers, targets, saved.factors);
}

Tensor Head::backward_input(double scale, Kept& kept) {
  Saved& saved = kept.get<Saved>();
  cross_entropy_backward(saved.exponentials, saved.factors, saved.targets, part_.begin, scale);
  saved.factors = Tensor();
  const Tensor dx = context_.activation(saved.x.shape());
  if (saved.exponentials.count() > 0)
    context_.gemm.multiply(saved.exponentials, value_of(weight_), dx, false);
  else
    dx.clear();  // a rank without vocabulary
  return norm_.backward_input(enter_shared_backward(context_, dx), saved.norm);
}

void Head::backward_weight(Kept& kept) {
  Saved& saved = kept.get<Saved>();
  if (saved.exponentials.count() > 0)
    context_.gemm.multiply(MatrixView(saved.exponentials).transpose(), saved.x, weight_.gradient,
                           true);
  norm_.backward_weight(saved.norm);
  kept.clear();
}

Tensor Head::logits(const Tensor& x) {
  Kept unused;
  const Tensor whole = enter_shared(context_, norm_.forward(x, unused));
  const std::int64_t rows = whole.rows();
  const Tensor result = context_.wide_activation({rows, vocabulary_});
  const int size = context_.tp.size();
  if (size == 1) {
    multiply_by_weight(whole, result);
    return result;
  }
  // Parts are gathered at the size of the largest, and then put side by side.
  const std::int64_t each = vocabulary_part(vocabulary_, 0, size).end;
  const Tensor part = context_.wide_activation({rows, each});
  part.clear();
  MatrixView own = part;
  own.columns = part_.end - part_.begin;
  multiply_by_weight(whole, own);
  const Tensor parts = context_.wide_activation({size, rows, each});
  context_.tp.all_gather(part, parts);
  for (int p = 0; p < size; ++p)
    copy_columns(parts.part(p, 1), vocabulary_part(vocabulary_, p, size), result);
  return result;
}

void Head::multiply_by_weight(const Tensor& x, const MatrixView& logits) const {
  if (logits.columns > 0)
    context_.gemm.multiply(x, MatrixView(value_of(weight_)).transpose(), logits, false);
}

void Head::visit(const ParameterVisitor& visitor) {
  norm_.visit(visitor);
  visitor(weight_);
}

}  // namespace tutti::training
