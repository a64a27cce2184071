// initial.hpp: the values that parameters begin with: a function of the seed, the parameter's name
// and the element's index in the whole weight, so that it does not matter who holds which part.
#pragma once

#include <cstdint>

#include "training/modules/parameter.hpp"
#include "training/tensor/tensor.hpp"

namespace tutti::training {

// Fills `out` with elements [begin, end) of the rank's part: drawn in double, then rounded to out's
// type as everything else is (tensor/element.hpp).
// Requires  out has end - begin elements of a floating type.
void initialise(const Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                std::int64_t end, const Tensor& out);

}  // namespace tutti::training
