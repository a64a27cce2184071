// Multiplies chunk indices and repeats programs.
#include "collectives/refine.hpp"

#include "base/assert.hpp"

namespace tutti::collectives {
namespace {

// The parts of `program` with chunk c taken as chunks c * factor + first ...; `count` times as
// many.
void append_refined(const Program& program, int factor, int first, int count, Program& out) {
  for (const Repeat& part : program.parts) {
    Repeat& refined = out.parts.emplace_back(part);
    for (Step& step : refined.body)
      for (auto* operands : {&step.sources, &step.destinations})
        for (Operand& operand : *operands) {
          operand.count *= count;
          if (operand.kind == Operand::Kind::chunks)
            operand.index = operand.index * factor + AffineIndex(first);
        }
  }
}

bool moves_ranges(const Schedule& schedule) {
  for (const Program& program : schedule.programs)
    for (const Repeat& part : program.parts)
      for (const Step& step : part.body)
        for (const auto* operands : {&step.sources, &step.destinations})
          for (const Operand& operand : *operands)
            if (operand.count != 1) return true;
  return false;
}

Schedule refined_shape(const Schedule& schedule, int factor) {
  TUTTI_ASSERT(factor >= 1, "a chunk becomes at least one");
  TUTTI_ASSERT(schedule.shape.collective != Collective::barrier, "a barrier has one chunk");
  Schedule result = schedule;
  result.shape.chunks *= factor;
  for (Program& program : result.programs) program.parts.clear();
  return result;
}

}  // namespace

Schedule widened(const Schedule& schedule, int factor) {
  Schedule result = refined_shape(schedule, factor);
  result.shape.message_chunks_max *= factor;
  for (std::size_t p = 0; p < schedule.programs.size(); ++p)
    append_refined(schedule.programs[p], factor, 0, factor, result.programs[p]);
  return result;
}

std::optional<Schedule> sliced(const Schedule& schedule, int factor) {
  if (moves_ranges(schedule)) return std::nullopt;
  Schedule result = refined_shape(schedule, factor);
  for (std::size_t p = 0; p < schedule.programs.size(); ++p)
    for (int slice = 0; slice < factor; ++slice)
      append_refined(schedule.programs[p], factor, slice, 1, result.programs[p]);
  return result;
}

}  // namespace tutti::collectives
