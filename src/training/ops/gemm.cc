// gemm.cc: checks what callers of a product promise, and makes the implementation of a name.
#include "training/ops/gemm.hpp"

#include "training/ops/gemm_builtin.hpp"
#include "training/ops/gemm_libraries.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training {
namespace {

class BuiltinGemm final : public Gemm {
 public:
  std::string_view name() const override { return "builtin"; }
  void multiply(const MatrixView& a, const MatrixView& b, const MatrixView& c,
                bool accumulate) const override {
    multiply_builtin(checked_product(a, b, c, accumulate));
  }
};

// The quickest that is built in for each type.
class AutoGemm final : public Gemm {
 public:
  std::string_view name() const override { return "auto"; }
  void multiply(const MatrixView& a, const MatrixView& b, const MatrixView& c,
                bool accumulate) const override {
    const Gemm& chosen = a.type == DataType::bfloat16 ? bfloat16_ : plain_;
    chosen.multiply(a, b, c, accumulate);
  }

 private:
  const std::unique_ptr<Gemm> builtin_ = std::make_unique<BuiltinGemm>();
  const std::unique_ptr<Gemm> openblas_ = make_openblas_gemm();
  const std::unique_ptr<Gemm> onednn_ = make_onednn_gemm();
  const Gemm& plain_ = openblas_ ? *openblas_ : *builtin_;
  const Gemm& bfloat16_ = onednn_ && onednn_is_quick_for_bfloat16() ? *onednn_ : *builtin_;
};

}  // namespace

Product checked_product(const MatrixView& a, const MatrixView& b, const MatrixView& c,
                        bool accumulate) {
  Product product{.a = a, .b = b, .c = c, .accumulate = accumulate};
  product.rows = a.transposed ? a.columns : a.rows;
  product.depth = a.transposed ? a.rows : a.columns;
  product.columns = b.transposed ? b.rows : b.columns;
  TRAINING_CHECK(product.depth == (b.transposed ? b.columns : b.rows), "extents of a product");
  TRAINING_CHECK(c.rows == product.rows && c.columns == product.columns && !c.transposed,
                 "extents of a product's result");
  TRAINING_CHECK(a.type == b.type && (c.type == a.type || c.type == wide_type(a.type)),
                 "element types of a product");
  for (const MatrixView* m : {&a, &b, &c})
    TRAINING_CHECK(m->stride >= m->columns || m->rows <= 1, "rows of a matrix overlap");
  return product;
}

Result<std::unique_ptr<Gemm>> make_gemm(std::string_view name) {
  std::unique_ptr<Gemm> made;
  if (name == "builtin") return std::unique_ptr<Gemm>(std::make_unique<BuiltinGemm>());
  if (name == "auto") return std::unique_ptr<Gemm>(std::make_unique<AutoGemm>());
  if (name == "openblas") {
    made = make_openblas_gemm();
  } else if (name == "onednn") {
    made = make_onednn_gemm();
  } else {
    return Status(StatusCode::invalid_argument, "gemm \"" + std::string(name) +
                                                    "\" does not exist; there are builtin, "
                                                    "openblas, onednn and auto");
  }
  if (!made)
    return Status(StatusCode::unsupported,
                  "this build has no gemm \"" + std::string(name) + "\"; builtin is always there");
  return made;
}

std::vector<std::string> gemm_names() {
  std::vector<std::string> names = {"auto", "builtin"};
  if (make_openblas_gemm()) names.push_back("openblas");
  if (make_onednn_gemm()) names.push_back("onednn");
  return names;
}

}  // namespace tutti::training
