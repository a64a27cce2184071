// operation.hpp: the operations of -o: those of the library, and mulsum, the sum in which every
// rank's contribution has a factor of its own.
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/reduction.hpp"

namespace tutti::perf {

// Threading  a value.
struct Operation {
  Operation() = default;
  Operation(ReduceOp plain) : op(plain) {}  // implicit: they are operations

  ReduceOp op = ReduceOp::sum;
  bool scaled = false;  // mulsum

  friend bool operator==(const Operation&, const Operation&) = default;
};

inline Operation mulsum() {
  Operation operation;
  operation.scaled = true;
  return operation;
}

inline std::string_view to_string(const Operation& operation) {
  return operation.scaled ? "mulsum" : to_string(operation.op);
}

// The factors of mulsum: 1 and 2 in turn.
inline std::uint64_t factor_of(Rank rank) { return rank % 2 == 0 ? 1 : 2; }

// What `rank` passes to the library.
Reduction reduction(const Operation& operation, DataType type, Rank rank);

}  // namespace tutti::perf
