// module.hpp: what every layer is: forward, the gradient of its input, and the gradient of its
// weights, each a call of its own.
//
// Explicit instead of a tape: a pipeline can put off backward_weight (zero bubble), a sharded layer
// knows when its weights are needed, and what is recomputed is a decision one can read.
//
// Knows nothing of micro-batches' order, optimizers or data parallelism.
#pragma once

#include <any>
#include <cstdint>
#include <utility>

#include "training/modules/axis.hpp"
#include "training/modules/parameter.hpp"
#include "training/ops/gemm.hpp"
#include "training/tensor/element.hpp"
#include "training/tensor/tensor.hpp"

namespace tutti::training {

// What modules compute with and among whom. One for each rank; outlives its modules.
struct Context {
  Arena& arena;
  const Gemm& gemm;
  Axis& tp;                        // tensor parallel: shares every layer
  Axis& ep;                        // expert parallel: shares the experts
  DataType type;                   // of values and activations; sums are of wide_type(type)
  bool sequence_parallel = false;  // between tensor-parallel parts each rank has 1/tp of the rows

  // Of the micro-batches: activations are [batch * sequence, hidden], row b * sequence + t.
  std::int64_t batch = 1;
  std::int64_t sequence = 1;
  std::int64_t hidden = 1;

  // Of the load-balancing loss of mixtures of experts. The driver sets the first and clears the
  // second for each micro-batch.
  double balance_scale = 0;  // the gradient of the step's loss by a layer's balance loss
  double balance_loss = 0;   // layers add theirs in forward

  std::int64_t rows() const { return batch * sequence; }
  // Of an activation between tensor-parallel parts.
  std::int64_t local_rows() const { return sequence_parallel ? rows() / tp.size() : rows(); }

  Tensor activation(const Shape& shape) const {
    return Tensor(arena, MemoryKind::activation, type, shape);
  }
  Tensor wide_activation(const Shape& shape) const {
    return Tensor(arena, MemoryKind::activation, wide_type(type), shape);
  }
};

// What one module keeps of one micro-batch between its three calls. Each module puts a struct of
// its own there: `auto& saved = kept.make<Saved>();`. A composite's struct has a Kept for each
// part. Dropping it is how activations are freed.
class Kept {
 public:
  template <typename T>
  T& make() {
    return value_.emplace<T>();
  }
  template <typename T>
  T& get() {
    T* value = std::any_cast<T>(&value_);
    TRAINING_CHECK(value, "backward without the forward that it belongs to");
    return *value;
  }
  bool empty() const { return !value_.has_value(); }
  void clear() { value_.reset(); }

 private:
  std::any value_;
};

// Calls of one micro-batch come in this order: forward, backward_input, backward_weight; those of
// several micro-batches may be interleaved, each with its own Kept.
class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  virtual Tensor forward(const Tensor& x, Kept& kept) = 0;

  // The gradient of x, given that of the output. Keeps what backward_weight needs and lets go of
  // the rest.
  virtual Tensor backward_input(const Tensor& dy, Kept& kept) = 0;

  // Adds to the parameters' gradients; `kept` is empty after it.
  virtual void backward_weight(Kept& kept) = 0;

  // Calls `visitor` with each parameter, in an order that is the same on all ranks.
  virtual void visit(const ParameterVisitor& visitor) = 0;
};

}  // namespace tutti::training
