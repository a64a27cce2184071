// tensor_parallel.cc: the two directions between rows that are whole and rows that are shared, from
// which the four functions are made. Knows nothing of layers.
#include "training/modules/tensor_parallel.hpp"

namespace tutti::training {
namespace {

Shape with_rows(const Tensor& x, std::int64_t rows) { return {rows, x.columns()}; }

// The rows of all ranks.
Tensor gathered(const Context& context, const Tensor& x) {
  if (context.tp.size() == 1 || !context.sequence_parallel) return x;
  const Tensor whole = context.activation(with_rows(x, context.rows()));
  context.tp.all_gather(x, whole);
  return whole;
}

// The sum over ranks, of this rank's rows.
Tensor summed(const Context& context, const Tensor& y) {
  if (context.tp.size() == 1) return y;
  if (!context.sequence_parallel) {
    context.tp.all_reduce_sum(y);
    return y;
  }
  const Tensor part = context.activation(with_rows(y, context.local_rows()));
  context.tp.reduce_scatter(y, part);
  return part;
}

}  // namespace

Tensor enter_shared(const Context& context, const Tensor& x) { return gathered(context, x); }
Tensor enter_shared_backward(const Context& context, const Tensor& dx) {
  return summed(context, dx);
}

Tensor leave_shared(const Context& context, const Tensor& y) { return summed(context, y); }
Tensor leave_shared_backward(const Context& context, const Tensor& dy) {
  return gathered(context, dy);
}

}  // namespace tutti::training
