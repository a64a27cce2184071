// first_touches.cc: see first_touches.hpp.
#include "collectives/first_touches.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace tutti::collectives {

void FirstTouches::Two::add(int step) {
  if (step == first || step >= second) return;
  if (step < first)
    second = std::exchange(first, step);
  else
    second = step;
}

template <typename Visit>
void FirstTouches::for_each_place(const ExpandedOperand& range, Visit visit) const {
  for (int k = 0; k < range.count; ++k) {
    const int place = places_.of(range.buffer, range.index + k);
    TUTTI_ASSERT(place >= 0 && place < places_.count(), "a chunk lies inside its buffer");
    visit(static_cast<std::size_t>(place));
  }
}

FirstTouches::FirstTouches(const ScheduleShape& shape, Rank rank, const ExpandedProgram& program)
    : places_(shape, rank), touches_(static_cast<std::size_t>(places_.count())) {
  for (int s = 0; s < static_cast<int>(program.size()); ++s) {
    const ExpandedStep& step = program[static_cast<std::size_t>(s)];
    for (const auto* operands : {&step.sources, &step.destinations})
      for (const ExpandedOperand& operand : *operands) {
        if (operand.kind != Operand::Kind::chunks) continue;
        const bool writes = operands == &step.destinations;
        for_each_place(operand, [&](std::size_t place) {
          touches_[place].touched.add(s);
          if (writes) touches_[place].first_write = std::min(touches_[place].first_write, s);
        });
      }
  }
}

int FirstTouches::first_write(const ExpandedOperand& range) const {
  int first = kNever;
  for_each_place(range, [&](std::size_t p) { first = std::min(first, touches_[p].first_write); });
  return first;
}

FirstTouches::Two FirstTouches::first_two(const ExpandedOperand& range) const {
  Two two;
  for_each_place(range, [&](std::size_t place) {
    two.add(touches_[place].touched.first);
    two.add(touches_[place].touched.second);
  });
  return two;
}

bool FirstTouches::same_memory(const ExpandedOperand& a, const ExpandedOperand& b) const {
  if (a.count != b.count) return false;
  for (int k = 0; k < a.count; ++k)
    if (places_.of(a.buffer, a.index + k) != places_.of(b.buffer, b.index + k)) return false;
  return true;
}

}  // namespace tutti::collectives
