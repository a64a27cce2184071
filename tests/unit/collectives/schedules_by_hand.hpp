// schedules_by_hand.hpp: a way to write small two-sided schedules in tests without the builder, and
// a few that are right. Dependencies are written by hand too.
#pragma once

#include <utility>
#include <vector>

#include "collectives/mutate.hpp"

namespace tutti::collectives::testing {

inline ExpandedOperand in(int chunk, int count = 1) {
  return {Operand::Kind::chunks, Buffer::input, chunk, count};
}
inline ExpandedOperand out(int chunk, int count = 1) {
  return {Operand::Kind::chunks, Buffer::output, chunk, count};
}
inline ExpandedOperand scratch(int chunk, int count = 1) {
  return {Operand::Kind::chunks, Buffer::scratch, chunk, count};
}
inline ExpandedOperand with(Rank peer, int count = 1) {
  return {Operand::Kind::message, Buffer::input, peer, count};
}

using Operands = std::vector<ExpandedOperand>;

inline ExpandedStep copy(ExpandedOperand source, Operands destinations,
                         std::vector<int> after = {}) {
  return {StepKind::copy, false, {source}, std::move(destinations), std::move(after)};
}
inline ExpandedStep reduce(Operands sources, Operands destinations, std::vector<int> after = {}) {
  return {StepKind::reduce, false, std::move(sources), std::move(destinations), std::move(after)};
}
inline ExpandedStep finish(Operands sources, Operands destinations, std::vector<int> after = {}) {
  return {StepKind::reduce, true, std::move(sources), std::move(destinations), std::move(after)};
}

inline ScheduleShape shape_of(Collective collective, int ranks, int chunks = 1) {
  ScheduleShape shape;
  shape.collective = collective;
  shape.ranks = ranks;
  shape.chunks = chunks;
  return shape;
}

// All-reduce of two ranks: each sends its input and adds the other's.
inline TwoSidedWorld exchange() {
  TwoSidedWorld world{shape_of(Collective::all_reduce, 2), {}};
  for (Rank rank : {0, 1})
    world.programs.push_back(
        {copy(in(0), {with(1 - rank)}), finish({in(0), with(1 - rank)}, {out(0)}, {0})});
  return world;
}

// All-gather of three ranks around a ring; the middle step receives and passes on.
inline TwoSidedWorld ring_of_three() {
  TwoSidedWorld world{shape_of(Collective::all_gather, 3), {}};
  for (Rank rank : {0, 1, 2}) {
    const Rank right = (rank + 1) % 3;
    const Rank left = (rank + 2) % 3;
    world.programs.push_back({copy(in(0), {out(rank), with(right)}),
                              copy(with(left), {out(left), with(right)}),
                              copy(with(left), {out(right)})});
  }
  return world;
}

// Rank 0's input to rank 1, which passes it on to rank 2.
inline TwoSidedWorld chain_of_three() {
  TwoSidedWorld world{shape_of(Collective::broadcast, 3), {}};
  world.programs = {{copy(in(0), {out(0), with(1)})},
                    {copy(with(0), {out(0), with(2)})},
                    {copy(with(1), {out(0)})}};
  return world;
}

}  // namespace tutti::collectives::testing
