// gradient_tree.hpp: adds the gradients of micro-batches 0, 1, 2, ... along a balanced binary tree
// over their numbers, instead of one after the other.
//
// So groups of 2^k consecutive micro-batches, beginning at a multiple of 2^k, can be added anywhere
// (on another data-parallel rank) and the whole has the same bits: it is the tree by which Tutti's
// reduce_order=rank_tree adds over ranks. Knows neither ranks nor what a gradient is of.
#pragma once

#include <cstdint>
#include <vector>

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// The sum of n tensors is the sum of the first p, p the largest power of two below n, plus the sum
// of the others.
//
// Lifetime  the arena outlives it.
// Cost      the partial sums are like the digits of a binary counter: together with the tensor that
//           is being filled at most log2(n) + 1 tensors, n - 1 additions of a tensor, no copy.
class GradientTree {
 public:
  // Requires  a wide type: float32 or float64.
  GradientTree(Arena& arena, DataType type, const Shape& shape);

  // A tensor of zeros, for the next micro-batch's gradient to be added to.
  Tensor next() const;

  // The gradient of the next micro-batch; its memory becomes the tree's.
  void push(Tensor gradient);

  std::int64_t pushed() const { return pushed_; }

  // The sum of all, in memory that now is the caller's; the tree begins anew.
  // Requires  count == pushed() >= 1: what the caller counted is what is here.
  Tensor finish(std::int64_t count);

 private:
  Arena& arena_;
  DataType type_;
  Shape shape_;
  std::vector<Tensor> partial_;  // one for each binary digit 1 of pushed_, the highest first
  std::int64_t pushed_ = 0;
};

}  // namespace tutti::training
