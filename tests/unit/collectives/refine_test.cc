// Finer chunks: what becomes of indices, and that the result is as right as the original.
#include "collectives/refine.hpp"

#include <gtest/gtest.h>

#include "collectives/algorithms/table.hpp"
#include "collectives/expand.hpp"
#include "collectives/verifier.hpp"

namespace tutti::collectives {
namespace {

Schedule told(Collective collective, std::string_view name, int ranks) {
  return *build(**find_algorithm(collective, name), ranks, 0);
}

Verdict verdict_of(const Schedule& schedule) {
  std::vector<ExpandedProgram> programs;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    programs.push_back(expand(schedule, rank));
  return verify(schedule.shape, programs);
}

TEST(Refine, WidenedMovesRanges) {
  const Schedule ring = told(Collective::all_gather, "ring", 3);
  const Schedule wide = widened(ring, 4);
  EXPECT_EQ(wide.shape.chunks, 4);
  EXPECT_EQ(wide.shape.message_chunks_max, 4);
  const ExpandedProgram program = unroll(wide, 2);
  EXPECT_EQ(program.size(), unroll(ring, 2).size());
  EXPECT_EQ(program[0].destinations[0].index, 8);
  EXPECT_EQ(program[0].destinations[0].count, 4);
  EXPECT_EQ(program[0].destinations[1].index, 0);  // a peer is no chunk
  EXPECT_EQ(verdict_of(wide).reason, "");
  EXPECT_EQ(widened(ring, 1), ring);
}

TEST(Refine, SlicedRepeatsTheSchedule) {
  const Schedule ring = told(Collective::all_gather, "ring", 3);
  const auto slices = sliced(ring, 2);
  ASSERT_TRUE(slices.has_value());
  EXPECT_EQ(slices->shape.chunks, 2);
  EXPECT_EQ(slices->shape.message_chunks_max, 1);
  const ExpandedProgram program = unroll(*slices, 1);
  const std::size_t steps = unroll(ring, 1).size();
  ASSERT_EQ(program.size(), 2 * steps);
  EXPECT_EQ(program[0].sources[0].index, 0);
  EXPECT_EQ(program[steps].sources[0].index, 1);
  EXPECT_EQ(program[steps].destinations[0].index, 3);
  EXPECT_EQ(verdict_of(*slices).reason, "");
}

TEST(Refine, RangesCannotBeSliced) {
  EXPECT_FALSE(sliced(told(Collective::all_reduce, "halving_doubling", 8), 2).has_value());
}

}  // namespace
}  // namespace tutti::collectives
