// gemm.hpp: the one place where matrices are multiplied; several libraries can do it.
//
//   builtin   ours: each element of the result is one chain of additions over k in ascending order,
//             whatever the other extents are and wherever the element lies, so that splitting rows
//             or columns among ranks changes no bit. For proofs, and always there.
//   openblas  quick, for float32 and float64; one thread.
//   onednn    quick, for bfloat16.
//   auto      the quickest that is built in for each type.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "training/tensor/tensor.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// A matrix in memory: row-major, `stride` elements from one row to the next. `transposed` means
// that its transpose is what is multiplied; rows and columns are those in memory.
struct MatrixView {
  std::byte* data = nullptr;
  DataType type = DataType::float32;
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool transposed = false;

  MatrixView() = default;
  MatrixView(const Tensor& t)  // implicit: a tensor is a matrix, see Tensor::rows()
      : data(t.data()), type(t.type()), rows(t.rows()), columns(t.columns()), stride(t.columns()) {}

  MatrixView transpose() const {
    MatrixView other = *this;
    other.transposed = !transposed;
    return other;
  }
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual std::string_view name() const = 0;

  // c = a b, or c += a b.
  // Requires  a and b of one floating type; c of that type or of wide_type() of it, not transposed;
  //           memory that does not overlap. Sums are of wide_type().
  virtual void multiply(const MatrixView& a, const MatrixView& b, const MatrixView& c,
                        bool accumulate) const = 0;
};

// Errors  invalid_argument for a name that does not exist, with those that do; unsupported for one
//         that this build does not have.
Result<std::unique_ptr<Gemm>> make_gemm(std::string_view name);

// "builtin", "openblas", ...: what this build has.
std::vector<std::string> gemm_names();

}  // namespace tutti::training
