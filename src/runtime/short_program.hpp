// short_program.hpp: a program as a small call runs it. A call that is not cut into channels and
// slices needs none of what cutting takes: every step is taken once, every operand lies where it
// lies, where the peer's lies, or at the head of a queue, and which steps are complete fits one
// word.
//
// Made once for a shape (program, count, type); calls of that shape then look nothing up. What
// messages are, and their ways, is what the program says (call_program.hpp): operands go by the
// same numbers.
//
// Knows nothing of transports or time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/geometry.hpp"
#include "runtime/call_program.hpp"

namespace tutti::runtime {

struct ShortStep {
  StepKind kind = StepKind::copy;
  bool finish = false;
  bool may_land = false;  // as in CallStep
  bool may_offer = false;
  bool sends_at_once = false;  // a piece of the rank's own memory, which it may copy as well
  bool keeps_sum = false;      // a sum that it also sends, and which could be sent at once
  std::uint32_t sources = 0;   // where its operands begin
  std::uint32_t destinations = 0;
  std::uint32_t end = 0;
  std::uint64_t depends = 0;  // a bit for each step that must be complete, or ...
  std::uint64_t fused = 0;    // ... of these, have offered, if both messages travel direct
  std::size_t elements = 0;   // of every operand
};

class ShortProgram {
 public:
  static constexpr std::size_t kStepsMax = 64;  // bits of a word

  // Requires  fits(program): few enough steps. `whole` cuts into one channel and one slice.
  // Messages of at most `at_once_bytes`, if the step is only to send them, need no place first.
  static bool fits(const CallProgram& program) { return program.steps().size() <= kStepsMax; }
  void lay_out(const CallProgram& program, const collectives::Geometry& whole,
               std::size_t element_bytes, std::size_t at_once_bytes);
  void clear();

  bool empty() const { return steps_.empty(); }
  const std::vector<ShortStep>& steps() const { return steps_; }
  // A bit for every step. Requires  !empty().
  std::uint64_t all() const { return ~std::uint64_t{0} >> (kStepsMax - steps_.size()); }

  // Where an operand begins, in its buffer of the rank or, of a message, the peer. Unit: bytes.
  std::size_t offset(std::uint32_t operand) const { return offsets_[operand]; }
  std::size_t memory_bytes() const;

 private:
  std::vector<ShortStep> steps_;
  std::vector<std::size_t> offsets_;  // by operand
};

}  // namespace tutti::runtime
