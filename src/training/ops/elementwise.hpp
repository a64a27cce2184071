// elementwise.hpp: sums of tensors, and of each row of a matrix with a vector. Knows nothing of
// modules.
#pragma once

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// sum += term. Requires  one type, as many elements.
void add_to(const Tensor& sum, const Tensor& term);

// Each row of `matrix` += `row`. Requires  one type, as many elements as columns.
void add_row(const Tensor& matrix, const Tensor& row);

// sums[j] += the column j of `matrix`, row after row.
// Requires  `sums` of wide_type(matrix.type()), as many elements as columns.
void add_column_sums(const Tensor& sums, const Tensor& matrix);

}  // namespace tutti::training
