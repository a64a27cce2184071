// gemm_openblas.cc: products by OpenBLAS, on one thread: each rank has a core of its own.
#include "training/ops/gemm_builtin.hpp"
#include "training/ops/gemm_libraries.hpp"

#if TUTTI_HAS_OPENBLAS

#include <cblas.h>

#include <mutex>

namespace tutti::training {
namespace {

CBLAS_TRANSPOSE order(const MatrixView& m) { return m.transposed ? CblasTrans : CblasNoTrans; }

blasint extent(std::int64_t value) {
  TRAINING_CHECK(value <= 0x7fffffff, "OpenBLAS counts in 32 bits");
  return static_cast<blasint>(value);
}

// OpenBLAS refuses a stride of 0, which matrices without columns have.
blasint stride(const MatrixView& m) { return std::max<blasint>(1, extent(m.stride)); }

template <typename T>
T* elements(const MatrixView& m) {
  return reinterpret_cast<T*>(m.data);
}

class OpenblasGemm final : public Gemm {
 public:
  OpenblasGemm() {
    static std::once_flag once;
    std::call_once(once, [] { openblas_set_num_threads(1); });
  }

  std::string_view name() const override { return "openblas"; }

  void multiply(const MatrixView& a, const MatrixView& b, const MatrixView& c,
                bool accumulate) const override {
    const Product p = checked_product(a, b, c, accumulate);
    if (p.rows == 0 || p.columns == 0) return;
    const blasint m = extent(p.rows), n = extent(p.columns), k = extent(p.depth);
    const bool plain = a.type == DataType::float32 || a.type == DataType::float64;
    if (p.depth == 0 || !plain) {
      multiply_builtin(p);
    } else if (a.type == DataType::float32) {
      cblas_sgemm(CblasRowMajor, order(a), order(b), m, n, k, 1, elements<float>(a), stride(a),
                  elements<float>(b), stride(b), accumulate ? 1.f : 0.f, elements<float>(c),
                  stride(c));
    } else {
      cblas_dgemm(CblasRowMajor, order(a), order(b), m, n, k, 1, elements<double>(a), stride(a),
                  elements<double>(b), stride(b), accumulate ? 1. : 0., elements<double>(c),
                  stride(c));
    }
  }
};

}  // namespace

std::unique_ptr<Gemm> make_openblas_gemm() { return std::make_unique<OpenblasGemm>(); }

}  // namespace tutti::training

#else

namespace tutti::training {

std::unique_ptr<Gemm> make_openblas_gemm() { return nullptr; }

}  // namespace tutti::training

#endif
