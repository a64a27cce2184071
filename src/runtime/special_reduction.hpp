// special_reduction.hpp: reductions that are more than a ReduceOp, from what the caller said to
// what a call does: scaling the input before it starts, combining values by the caller's function.
//
// Knows memory and counts; nothing of ranks, schedules or waiting.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/reduction.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

// What a signature says beside the ReduceOp.
enum class SpecialKind : std::uint8_t { none, premul_sum, custom };

struct SpecialReduction {
  SpecialKind kind = SpecialKind::premul_sum;
  DataType type = DataType::float32;  // of the scalar
  std::array<std::byte, 8> scalar = {};
  std::string name;  // of a custom one, and what follows
  Reduction::Function function;
  std::size_t width = 0;
  std::uint64_t hash = 0;  // of what ranks must agree on
};

// The reason why a call of so many elements cannot be made with it; empty when it can.
std::string refusal(const SpecialReduction& special, std::size_t count, DataType type);

// output[i] = input[i] times the scalar. The two may be the same memory.
void scale(const SpecialReduction& premul, const std::byte* input, std::byte* output,
           std::size_t count);

// One pass of a custom operation: the sources, folded along the canonical tree over them, into
// every destination. A destination is equal to a source or overlaps none.
struct CustomFold {
  const SpecialReduction& custom;
  DataType type;
  std::span<const std::byte* const> sources;
  std::span<std::byte* const> destinations;
  std::size_t count;  // values
};

// `memory` is kept between calls, to spare allocations.
void fold(const CustomFold& call, std::vector<std::byte>& memory);

// Memory for inputs that are scaled, kept for the next call.
class ScaledMemory {
 public:
  explicit ScaledMemory(Transport& transport) : transport_(transport) {}
  ~ScaledMemory();
  ScaledMemory(const ScaledMemory&) = delete;
  ScaledMemory& operator=(const ScaledMemory&) = delete;

  // At least so many bytes, or null. Lifetime: until the next call.
  std::byte* take(std::size_t bytes);
  std::size_t bytes() const { return bytes_; }

 private:
  void release();

  Transport& transport_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  bool shareable_ = false;
};

}  // namespace tutti::runtime
