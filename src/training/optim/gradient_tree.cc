// gradient_tree.cc: see gradient_tree.hpp.
#include "training/optim/gradient_tree.hpp"

#include <utility>

#include "training/tensor/element.hpp"

namespace tutti::training {
namespace {

template <typename W>
void add(std::int64_t count, W* __restrict sum, const W* __restrict other) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += other[i];
}

void add_to(const Tensor& sum, const Tensor& other) {
  if (sum.type() == DataType::float64)
    add(sum.count(), sum.as<double>(), other.as<double>());
  else
    add(sum.count(), sum.as<float>(), other.as<float>());
}

// The last two of the stack become their sum.
void merge_last(std::vector<Tensor>& stack) {
  const Tensor right = std::move(stack.back());
  stack.pop_back();
  add_to(stack.back(), right);
}

}  // namespace

GradientTree::GradientTree(Arena& arena, DataType type, const Shape& shape)
    : arena_(arena), type_(type), shape_(shape) {
  TRAINING_CHECK(type == wide_type(type), "gradients are added in a wide type");
}

Tensor GradientTree::next() const {
  return Tensor::zeros(arena_, MemoryKind::gradient, type_, shape_);
}

void GradientTree::push(Tensor gradient) {
  TRAINING_CHECK(gradient.type() == type_ && gradient.shape() == shape_, "a gradient of this tree");
  partial_.push_back(std::move(gradient));
  for (std::int64_t digits = pushed_; digits & 1; digits >>= 1) merge_last(partial_);
  ++pushed_;
}

Tensor GradientTree::finish(std::int64_t count) {
  TRAINING_CHECK(count == pushed_ && count >= 1, "as many gradients as micro-batches");
  while (partial_.size() > 1) merge_last(partial_);
  Tensor sum = std::move(partial_.back());
  partial_.clear();
  pushed_ = 0;
  return sum;
}

}  // namespace tutti::training
