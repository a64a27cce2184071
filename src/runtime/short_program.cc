// short_program.cc: see short_program.hpp.
#include "runtime/short_program.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "collectives/footprint.hpp"

namespace tutti::runtime {
namespace {

bool sends(const CallProgram& program, const CallStep& step) {
  const auto destinations = program.destinations(step);
  return std::any_of(destinations.begin(), destinations.end(),
                     [](const CallOperand& operand) { return operand.is_message; });
}

// Whether a step sends what lies in the rank's own memory, and no more than copies it besides.
bool sends_own_memory(const CallProgram& program, const CallStep& step) {
  return step.kind == StepKind::copy && !program.sources(step)[0].is_message &&
         sends(program, step);
}

// Whether what a step sends stays in the rank's own memory, too, as it is.
bool keeps_sum_it_sends(const CallProgram& program, const CallStep& step) {
  const auto destinations = program.destinations(step);
  const bool keeps = std::any_of(destinations.begin(), destinations.end(),
                                 [](const CallOperand& operand) { return !operand.is_message; });
  return step.kind == StepKind::reduce && keeps && sends(program, step);
}

}  // namespace

void ShortProgram::lay_out(const CallProgram& program, const collectives::Geometry& whole,
                           std::size_t element_bytes, std::size_t at_once_bytes) {
  TUTTI_ASSERT(fits(program), "a short program has few steps");
  clear();
  for (const CallStep& from : program.steps()) {
    ShortStep step;
    step.kind = from.kind;
    step.finish = from.finish;
    step.may_land = from.may_land;
    step.may_offer = from.may_offer;
    step.sources = from.sources;
    step.destinations = from.destinations;
    step.end = from.end;
    for (std::uint32_t d = from.depends; d < from.depends_end; ++d) {
      const collectives::LoweredDependency& dependency = program.dependencies()[d];
      const std::uint64_t bit = std::uint64_t{1} << dependency.step;
      step.depends |= bit;
      if (dependency.fused) step.fused |= bit;
    }
    // Chunks that follow each other lie one behind the other where nothing is cut.
    const std::int32_t first = program.operand(from.in_memory).chunk;
    for (std::int32_t piece = 0; piece < from.pieces; ++piece)
      step.elements += whole.of(first + piece, 0, 0).count;
    const bool at_once = step.elements * element_bytes <= at_once_bytes;
    step.sends_at_once = at_once && sends_own_memory(program, from);
    step.keeps_sum = at_once && keeps_sum_it_sends(program, from);
    for (std::uint32_t i = from.sources; i < from.end; ++i) {
      TUTTI_ASSERT(i == offsets_.size(), "operands lie in the order of steps");
      offsets_.push_back(whole.of(program.operand(i).chunk, 0, 0).begin * element_bytes);
    }
    steps_.push_back(step);
  }
}

void ShortProgram::clear() {
  steps_.clear();
  offsets_.clear();
}

std::size_t ShortProgram::memory_bytes() const {
  return collectives::bytes_of(steps_) + collectives::bytes_of(offsets_);
}

}  // namespace tutti::runtime
