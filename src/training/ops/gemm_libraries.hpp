// gemm_libraries.hpp: products by libraries that a build may lack. Each is one source that is
// always compiled, and makes nothing where its library is not there.
#pragma once

#include <memory>

#include "training/ops/gemm.hpp"

namespace tutti::training {

// Float32 and float64 by OpenBLAS, the rest by ours; null in a build without it.
std::unique_ptr<Gemm> make_openblas_gemm();

// Float32 and bfloat16 by oneDNN, as far as it can on this processor, the rest by ours; null in a
// build without it.
std::unique_ptr<Gemm> make_onednn_gemm();

// Whether the processor has what oneDNN needs to be quicker than ours.
bool onednn_is_quick_for_bfloat16();

}  // namespace tutti::training
