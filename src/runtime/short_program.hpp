// short_program.hpp: a program as a small call runs it. A call that is not cut into channels and
// slices, and whose messages all go through queues, needs none of what cutting takes: every step is
// taken once, every operand lies where it lies or at the head of a queue, and which steps are
// complete fits one word.
//
// Made once for a shape (program, count, type); calls of that shape then look nothing up.
//
// Knows nothing of transports or time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/geometry.hpp"
#include "runtime/call_program.hpp"

namespace tutti::runtime {

struct ShortOperand {
  bool is_message = false;
  Buffer buffer = Buffer::input;  // of memory
  std::size_t offset = 0;         // of memory, in that buffer. Unit: bytes
  std::uint32_t stream = 0;       // of a message: which peer, and
  std::uint32_t ordinal = 0;      // its number among those to, or from, that peer
};

struct ShortStep {
  StepKind kind = StepKind::copy;
  bool finish = false;
  std::uint32_t sources = 0;  // where its operands begin
  std::uint32_t destinations = 0;
  std::uint32_t end = 0;
  std::uint64_t depends = 0;  // a bit for each step that must be complete
  std::size_t elements = 0;   // of every operand
};

class ShortProgram {
 public:
  static constexpr std::size_t kStepsMax = 64;  // bits of a word

  // Requires  fits(program): few enough steps. `whole` cuts into one channel and one slice.
  static bool fits(const CallProgram& program) { return program.steps().size() <= kStepsMax; }
  void lay_out(const CallProgram& program, const collectives::Geometry& whole,
               std::size_t element_bytes);
  void clear();

  bool empty() const { return steps_.empty(); }
  const std::vector<ShortStep>& steps() const { return steps_; }
  // A bit for every step. Requires  !empty().
  std::uint64_t all() const { return ~std::uint64_t{0} >> (kStepsMax - steps_.size()); }

  std::span<const ShortOperand> sources(const ShortStep& step) const {
    return {operands_.data() + step.sources, step.destinations - step.sources};
  }
  std::span<const ShortOperand> destinations(const ShortStep& step) const {
    return {operands_.data() + step.destinations, step.end - step.destinations};
  }
  std::size_t memory_bytes() const;

 private:
  std::vector<ShortStep> steps_;
  std::vector<ShortOperand> operands_;
};

}  // namespace tutti::runtime
