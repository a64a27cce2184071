// first_touches.hpp: which steps of a rank touch its memory first, so that lowering can say what is
// ready for peers as soon as the rank has entered a call.
#pragma once

#include <limits>
#include <vector>

#include "collectives/places.hpp"
#include "tutti/schedule.hpp"

namespace tutti::collectives {

class FirstTouches {
 public:
  static constexpr int kNever = std::numeric_limits<int>::max();

  FirstTouches() = default;
  // Requires  indices of chunks that lie inside their buffers.
  FirstTouches(const ScheduleShape& shape, Rank rank, const ExpandedProgram& program);

  // Of all chunks of `range`, which is memory: the first step that writes one.
  int first_write(const ExpandedOperand& range) const;

  // The first step that reads or writes one, and the first other one that does.
  struct Two {
    int first = kNever;
    int second = kNever;
    void add(int step);
  };
  Two first_two(const ExpandedOperand& range) const;

  // Whether two ranges are one and the same memory when running in place.
  bool same_memory(const ExpandedOperand& a, const ExpandedOperand& b) const;

 private:
  struct Place {
    int first_write = kNever;
    Two touched;
  };
  template <typename Visit>
  void for_each_place(const ExpandedOperand& range, Visit visit) const;

  Places places_{ScheduleShape(), 0};
  std::vector<Place> touches_;
};

}  // namespace tutti::collectives
