// Unrolls loops and makes the order that the telling implies explicit.
#include "collectives/expand.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "collectives/places.hpp"

namespace tutti::collectives {
namespace {

ExpandedOperand evaluate(const Operand& operand, Rank rank, int loop_index) {
  return ExpandedOperand{operand.kind, operand.buffer, operand.index.at(rank, loop_index),
                         operand.count, operand.travel};
}

ExpandedStep evaluate(const Step& step, Rank rank, int loop_index) {
  ExpandedStep expanded;
  expanded.kind = step.kind;
  expanded.finish = step.finish;
  for (const Operand& source : step.sources)
    expanded.sources.push_back(evaluate(source, rank, loop_index));
  for (const Operand& destination : step.destinations)
    expanded.destinations.push_back(evaluate(destination, rank, loop_index));
  return expanded;
}

// Who touched a place last.
struct Access {
  int writer = -1;
  std::vector<int> readers;  // since the last write
};

}  // namespace

ExpandedProgram unroll(const Schedule& schedule, Rank rank) {
  ExpandedProgram program;
  for (const Repeat& part : schedule.program(rank).parts)
    for (int i = 0; i < part.times; ++i)
      for (const Step& step : part.body) program.push_back(evaluate(step, rank, i));
  return program;
}

void infer_dependencies(const ScheduleShape& shape, Rank rank, ExpandedProgram& program) {
  const Places places(shape, rank);
  std::vector<Access> accesses(static_cast<std::size_t>(places.count()));
  auto for_each_place = [&](const std::vector<ExpandedOperand>& operands, auto&& visit) {
    for (const ExpandedOperand& operand : operands) {
      if (operand.kind != Operand::Kind::chunks) continue;
      for (int k = 0; k < operand.count; ++k) {
        const int place = places.of(operand.buffer, operand.index + k);
        TUTTI_ASSERT(place >= 0 && place < places.count(), "a chunk lies inside its buffer");
        visit(accesses[static_cast<std::size_t>(place)]);
      }
    }
  };
  for (int index = 0; index < static_cast<int>(program.size()); ++index) {
    ExpandedStep& step = program[static_cast<std::size_t>(index)];
    std::vector<int>& depends = step.depends;
    auto depend_on = [&](int earlier) {
      if (earlier >= 0 && earlier != index) depends.push_back(earlier);
    };
    for_each_place(step.sources, [&](Access& access) { depend_on(access.writer); });
    for_each_place(step.destinations, [&](Access& access) {
      depend_on(access.writer);
      for (int reader : access.readers) depend_on(reader);
    });
    std::sort(depends.begin(), depends.end());
    depends.erase(std::unique(depends.begin(), depends.end()), depends.end());
    for_each_place(step.sources, [&](Access& access) { access.readers.push_back(index); });
    for_each_place(step.destinations, [&](Access& access) {
      access.writer = index;
      access.readers.clear();
    });
  }
}

ExpandedProgram expand(const Schedule& schedule, Rank rank) {
  ExpandedProgram program = unroll(schedule, rank);
  infer_dependencies(schedule.shape, rank, program);
  return program;
}

}  // namespace tutti::collectives
