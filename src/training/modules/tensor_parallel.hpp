// tensor_parallel.hpp: where activations go into, and come out of, a part of a layer that the ranks
// of the tensor-parallel axis share. Megatron's conjugate operators: `enter` is f (or, with
// sequence parallelism, g), `leave` the other one.
//
//                 without sequence parallelism      with it
//   enter         nothing                           all_gather of rows
//   its backward  all_reduce                        reduce_scatter of rows
//   leave         all_reduce                        reduce_scatter of rows
//   its backward  nothing                           all_gather of rows
//
// Source  Shoeybi et al.: Megatron-LM (2019); Korthikanti et al.: Reducing activation recomputation
//         in large transformer models (2022).
#pragma once

#include "training/modules/module.hpp"

namespace tutti::training {

// x: [local rows, size]; the result: [rows, size]. May be x itself.
Tensor enter_shared(const Context& context, const Tensor& x);
// dx: this rank's part of a sum, [rows, size], which may be changed; the result: [local rows,
// size].
Tensor enter_shared_backward(const Context& context, const Tensor& dx);

// y: this rank's part of a sum, [rows, size], which may be changed; the result: [local rows, size].
Tensor leave_shared(const Context& context, const Tensor& y);
// dy: [local rows, size]; the result: [rows, size]. May be dy itself.
Tensor leave_shared_backward(const Context& context, const Tensor& dy);

}  // namespace tutti::training
