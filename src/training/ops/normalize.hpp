// normalize.hpp: the arithmetic of RMSNorm and LayerNorm, row by row. Knows nothing of modules.
#pragma once

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// Of all: x, y, dy, dx [rows, size] of one type; weight and bias [size] of that type, the bias
// empty for RMSNorm; statistics and gradients of wide_type().
//
// statistics: [rows, 2]: what is subtracted from a row (its mean; of RMSNorm 0), and by what the
// rest is multiplied.

// y = (x - mean) / sqrt(mean of (x - mean)^2 + epsilon) * weight + bias; of RMSNorm the mean and
// the bias are 0.
void normalize(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
               const Tensor& y, const Tensor& statistics);

// The gradient of x. `centred` for LayerNorm.
void normalize_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight,
                        bool centred, const Tensor& dy, const Tensor& dx);

// dweight += sums over rows of dy * (normalized x), row after row.
void normalize_backward_weight(const Tensor& x, const Tensor& statistics, const Tensor& dy,
                               const Tensor& dweight);

}  // namespace tutti::training
