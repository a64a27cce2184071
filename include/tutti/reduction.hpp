// reduction.hpp: by what the contributions of all ranks become one value: a built-in operation, a
// sum in which every rank's contribution has a factor of its own, or an operation that the caller
// brings.
//
// Knows nothing of how reductions are done.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "tutti/numeric.hpp"
#include "tutti/types.hpp"

#pragma GCC visibility push(default)
namespace tutti {

namespace runtime {
struct SpecialReduction;
}  // namespace runtime

// What every call that reduces takes; a ReduceOp is one.
//
// Lifetime  a value, good for any communicator and any number of calls. A call keeps what it needs:
//           unlike an ncclRedOp_t there is nothing to destroy, and temporaries may be passed to
//           calls that are only started.
class Reduction {
 public:
  Reduction(ReduceOp op) : op_(op) {}  // implicit: sum, prod, min, max and avg are reductions

  // Each rank's input times that rank's scalar, rounded to the element type as any product of it,
  // then summed. Scalars may differ by rank. (NCCL: ncclRedOpCreatePreMulSum.)
  //
  // Requires  calls of exactly this element type. Errors of calls: invalid_argument.
  // Cost      a pass over the input before the call, into memory of the communicator, which keeps
  // as
  //           much as its largest such call needed.
  template <typename T>
  static Reduction premul_sum(T scalar) {
    return premul_sum(data_type_of<T>(), &scalar);
  }
  static Reduction premul_sum(DataType type, const void* scalar);

  // result[i] = left[i] and right[i] combined, for `count` values. `left` comes from lower ranks
  // than `right`. Pointers are aligned as `type` is, `result` overlaps neither operand.
  //
  // Threading  whichever thread moves the call forward, one at a time for each communicator. Calls
  //            of other communicators may be waiting for it.
  // Errors     it cannot fail, and must not throw.
  using Function = std::function<void(const void* left, const void* right, void* result,
                                      std::size_t count, DataType type)>;

  // An operation of the caller's own, associative but not necessarily commutative: contributions
  // are combined in the order of ranks, whatever reduce_order says. Every rank must pass the same
  // operation; ranks that pass operations of different names or widths get a mismatch error.
  //
  // Requires  a name, a function, width >= 1. Units: `width` elements are one value (4 of a 2x2
  //           matrix); counts are still told in elements. Errors of calls: invalid_argument.
  // Cost      copies between the steps of the tree over the ranks; only the algorithms of
  //           reduce_order=rank_tree.
  static Reduction custom(std::string name, Function function, std::size_t width = 1);

  // What it is called: "sum", "premul_sum", "custom operation 'affine'".
  std::string name() const;

  // ---- For the library ----
  using Special = std::shared_ptr<const runtime::SpecialReduction>;
  ReduceOp op() const { return op_; }                  // of partial results
  const Special& special() const { return special_; }  // null for a plain ReduceOp

 private:
  explicit Reduction(Special special) : op_(ReduceOp::sum), special_(std::move(special)) {}

  ReduceOp op_;
  Special special_;
};

}  // namespace tutti
#pragma GCC visibility pop
