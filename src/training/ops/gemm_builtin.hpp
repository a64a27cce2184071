// gemm_builtin.hpp: the matrix product that is always there; see gemm.hpp for what it promises.
#pragma once

#include "training/ops/gemm.hpp"

namespace tutti::training {

// What Gemm::multiply() is called with, checked.
struct Product {
  MatrixView a, b, c;
  std::int64_t rows = 0, columns = 0, depth = 0;  // c is rows x columns, sums are of `depth`
  bool accumulate = false;
};

// Requires  the element types to be as Gemm::multiply() says, or its own bug is reported.
Product checked_product(const MatrixView& a, const MatrixView& b, const MatrixView& c,
                        bool accumulate);

// Each element of c is ((start + a0 b0) + a1 b1) + ..., start being 0 or what it was, of which each
// step is one fused operation where the processor has it. Therefore two products of halves of the
// depth, the second accumulating, are bit for bit the whole product where c is of wide_type().
void multiply_builtin(const Product& product);

}  // namespace tutti::training
