// convert.hpp: the same numbers as another element type.
#pragma once

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// to = from, rounded to nearest even where `to` is narrower. Requires  as many elements, floating.
void convert(const Tensor& from, const Tensor& to);

// sum += term, of one type, elementwise. Requires  as many elements.
void accumulate(const Tensor& sum, const Tensor& term);

}  // namespace tutti::training
