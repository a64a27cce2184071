// work.hpp: what there is to measure: an operation on elements of a type in buffers of a size, with
// sizes as nccl-tests define them. Knows nothing of libraries, clocks or contents.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace tutti::comparison {

enum class Operation { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast };
enum class Type { f32, bf16, f16 };

inline constexpr std::array<std::string_view, 5> kOperationNames = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};
inline constexpr std::array<std::string_view, 3> kTypeNames = {"f32", "bf16", "f16"};

inline std::string_view name_of(Operation operation) {
  return kOperationNames[static_cast<std::size_t>(operation)];
}
inline std::string_view name_of(Type type) { return kTypeNames[static_cast<std::size_t>(type)]; }

inline constexpr std::size_t size_of(Type type) { return type == Type::f32 ? 4 : 2; }

// Sums are all_reduce and reduce_scatter; the others move what is there.
inline constexpr bool sums(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter;
}

// Rank 0 is the root of a broadcast, which has one buffer per rank, its input and output in one.
struct Work {
  Operation operation = Operation::all_reduce;
  Type type = Type::f32;
  std::size_t bytes = 0;  // of a rank's larger buffer, nominally

  std::size_t input_blocks(int ranks) const {
    const bool many = operation == Operation::reduce_scatter || operation == Operation::all_to_all;
    return many ? static_cast<std::size_t>(ranks) : 1;
  }
  std::size_t output_blocks(int ranks) const {
    const bool many = operation == Operation::all_gather || operation == Operation::all_to_all;
    return many ? static_cast<std::size_t>(ranks) : 1;
  }
  // Elements of a block: at least one, so that 8 bytes are work for eight ranks too.
  std::size_t count(int ranks) const {
    const std::size_t blocks = std::max(input_blocks(ranks), output_blocks(ranks));
    return std::max<std::size_t>(bytes / size_of(type) / blocks, 1);
  }
};

}  // namespace tutti::comparison
