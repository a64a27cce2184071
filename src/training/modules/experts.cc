// experts.cc: see experts.hpp.
#include "training/modules/experts.hpp"

#include <bit>
#include <cmath>
#include <functional>

#include "training/ops/activation.hpp"
#include "training/ops/elementwise.hpp"

namespace tutti::training {
namespace {

Parameter expert_weight(std::string name, const Shape& whole, std::size_t split, double deviation,
                        const Axis& tp) {
  Parameter made = whole_parameter(std::move(name), whole);
  TRAINING_CHECK(whole[split] % tp.size() == 0,
                 "tensor-parallel ranks have equal parts of experts");
  const std::int64_t length = whole[split] / tp.size();
  made.part = {split, tp.rank() * length, length};
  made.sharing = Sharing::split;
  made.initial.deviation = deviation;
  made.expert = true;
  return made;
}

// Rows of experts one after the other, each expert's at once: calls f(expert, first row, count) for
// those that have any.
template <typename F>
void for_experts(const ExpertRows& rows, const F& f) {
  std::int64_t first = 0;
  for (std::int64_t e = 0; e < rows.experts(); ++e) {
    const std::int64_t count = rows.of(e);
    if (count > 0) f(static_cast<std::size_t>(e), first, count);
    first += count;
  }
}

// Writes the sum of terms [first, first + count) to `sum`, added as the tree that is described in
// experts.hpp. `term` writes one.
void add_tree(const std::function<void(std::int64_t, const Tensor&)>& term, std::int64_t first,
              std::int64_t count, const Tensor& sum, Arena& arena) {
  if (count == 1) return term(first, sum);
  const auto left =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count - 1)));
  add_tree(term, first, left, sum, arena);
  const Tensor right(arena, MemoryKind::gradient, sum.type(), sum.shape());
  add_tree(term, first + left, count - left, right, arena);
  add_to(sum, right);
}

}  // namespace

Experts::Experts(const std::string& name, const ModelConfig& config, Context& context)
    : context_(context), intermediate_(config.intermediate / context.tp.size()) {
  TRAINING_CHECK(config.experts % context.ep.size() == 0, "each rank has as many experts");
  const double deviation = config.initial_deviation;
  const double down_deviation = deviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  const Shape inward = {config.intermediate, config.hidden};
  const Shape outward = {config.hidden, config.intermediate};
  const std::int64_t here = config.experts / context.ep.size();
  for (std::int64_t e = context.ep.rank() * here; e < (context.ep.rank() + 1) * here; ++e) {
    const std::string prefix = name + "." + std::to_string(e);
    experts_.push_back(
        {expert_weight(prefix + ".w1.weight", inward, 0, deviation, context.tp),
         expert_weight(prefix + ".w2.weight", outward, 1, down_deviation, context.tp),
         expert_weight(prefix + ".w3.weight", inward, 0, deviation, context.tp)});
  }
}

Tensor Experts::forward(const Tensor& x, const ExpertRows& rows, Kept& kept) {
  auto& saved = kept.make<Saved>();
  saved.rows = rows;
  saved.x = x;
  saved.gate = context_.activation({rows.total(), intermediate_});
  saved.up = context_.activation({rows.total(), intermediate_});
  const Tensor product = context_.activation({rows.total(), intermediate_});
  const Tensor y = context_.activation(x.shape());
  const Gemm& gemm = context_.gemm;
  for_experts(rows, [&](std::size_t e, std::int64_t first, std::int64_t count) {
    const Expert& expert = experts_[e];
    const Tensor in = x.part(first, count);
    gemm.multiply(in, MatrixView(expert.gate.value).transpose(), saved.gate.part(first, count),
                  false);
    gemm.multiply(in, MatrixView(expert.up.value).transpose(), saved.up.part(first, count), false);
    const Tensor inner = product.part(first, count);
    swiglu(saved.gate.part(first, count), saved.up.part(first, count), inner);
    gemm.multiply(inner, MatrixView(expert.down.value).transpose(), y.part(first, count), false);
  });
  if (!recompute_) saved.product = product;
  return y;
}

Tensor Experts::backward_input(const Tensor& dy, Kept& kept) {
  auto& saved = kept.get<Saved>();
  const Gemm& gemm = context_.gemm;
  saved.dy = dy;
  saved.dgate = context_.activation(saved.gate.shape());
  saved.dup = context_.activation(saved.up.shape());
  if (recompute_) {
    saved.product = context_.activation(saved.gate.shape());
    swiglu(saved.gate, saved.up, saved.product);
  }
  const Tensor dproduct = context_.activation(saved.gate.shape());
  const Tensor dx = context_.activation(dy.shape());
  const Tensor dx_up = context_.activation(dy.shape());
  for_experts(saved.rows, [&](std::size_t e, std::int64_t first, std::int64_t count) {
    gemm.multiply(dy.part(first, count), experts_[e].down.value, dproduct.part(first, count),
                  false);
  });
  swiglu_backward(saved.gate, saved.up, dproduct, saved.dgate, saved.dup);
  for_experts(saved.rows, [&](std::size_t e, std::int64_t first, std::int64_t count) {
    const Expert& expert = experts_[e];
    gemm.multiply(saved.dgate.part(first, count), expert.gate.value, dx.part(first, count), false);
    gemm.multiply(saved.dup.part(first, count), expert.up.value, dx_up.part(first, count), false);
  });
  add_to(dx, dx_up);
  saved.gate = saved.up = {};
  return dx;
}

// Adds dy^T x, the rows those of an expert.
void Experts::add_gradient(Parameter& parameter, const Tensor& dy, const Tensor& x,
                           const ExpertRows& rows, std::int64_t expert) {
  std::vector<std::int64_t> first = {0};  // row of each source
  for (std::int64_t e = 0; e < expert; ++e) first[0] += rows.of(e);
  for (std::int64_t s = 0; s < rows.sources; ++s)
    first.push_back(first.back() + rows.of(expert, s));
  const auto multiply = [&](std::int64_t source, const Tensor& to, bool accumulate) {
    const std::int64_t begin = first[static_cast<std::size_t>(source)];
    const std::int64_t count = rows.of(expert, source);
    if (count > 0) {
      const Tensor slope = dy.part(begin, count);
      context_.gemm.multiply(MatrixView(slope).transpose(), x.part(begin, count), to, accumulate);
    } else if (!accumulate) {
      to.clear();
    }
  };
  if (rows.sources == 1) return multiply(0, parameter.gradient, true);
  const Tensor sum(context_.arena, MemoryKind::gradient, parameter.gradient.type(),
                   parameter.shape());
  add_tree([&](std::int64_t source, const Tensor& to) { multiply(source, to, false); }, 0,
           rows.sources, sum, context_.arena);
  add_to(parameter.gradient, sum);
}

void Experts::backward_weight(Kept& kept) {
  auto& saved = kept.get<Saved>();
  for (std::int64_t e = 0; e < saved.rows.experts(); ++e) {
    Expert& expert = experts_[static_cast<std::size_t>(e)];
    if (saved.rows.of(e) == 0) continue;
    add_gradient(expert.gate, saved.dgate, saved.x, saved.rows, e);
    add_gradient(expert.down, saved.dy, saved.product, saved.rows, e);
    add_gradient(expert.up, saved.dup, saved.x, saved.rows, e);
  }
  kept.clear();
}

void Experts::visit(const ParameterVisitor& visitor) {
  for (Expert& expert : experts_) {
    visitor(expert.gate);
    visitor(expert.down);
    visitor(expert.up);
  }
}

}  // namespace tutti::training
