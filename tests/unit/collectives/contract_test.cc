// The contracts, compared with the meaning of the collectives written out for a few chunks, and
// with the geometry that builders use.
#include "collectives/contract.hpp"

#include <gtest/gtest.h>

namespace tutti::collectives {
namespace {

using Atoms = std::vector<Atom>;

ScheduleShape shape_of(Collective collective, int ranks, int chunks, Rank root = 0) {
  ScheduleShape shape;
  shape.collective = collective;
  shape.ranks = ranks;
  shape.root = root;
  shape.chunks = chunks;
  return shape;
}

void expect_exactly(const Requirement& requirement, const Atoms& atoms, bool finished) {
  EXPECT_EQ(requirement.rule, Requirement::Rule::exactly);
  EXPECT_EQ(requirement.atoms, atoms);
  EXPECT_EQ(requirement.finished, finished);
}

TEST(Contract, ReductionsHoldEveryContributionOnceAndFinish) {
  const auto all_reduce = shape_of(Collective::all_reduce, 3, 2);
  expect_exactly(required_output(all_reduce, 2, 1), {{0, 1}, {1, 1}, {2, 1}}, true);
  const auto reduce_scatter = shape_of(Collective::reduce_scatter, 3, 2);
  expect_exactly(required_output(reduce_scatter, 2, 1), {{0, 5}, {1, 5}, {2, 5}}, true);
  const auto reduce = shape_of(Collective::reduce, 3, 2, 1);
  expect_exactly(required_output(reduce, 1, 0), {{0, 0}, {1, 0}, {2, 0}}, true);
  EXPECT_EQ(required_output(reduce, 0, 0).rule, Requirement::Rule::anything);
}

TEST(Contract, MovesHoldOneContribution) {
  expect_exactly(required_output(shape_of(Collective::all_gather, 3, 2), 0, 5), {{2, 1}}, false);
  expect_exactly(required_output(shape_of(Collective::broadcast, 3, 2, 1), 2, 1), {{1, 1}}, false);
  expect_exactly(required_output(shape_of(Collective::gather, 3, 2, 1), 1, 5), {{2, 1}}, false);
  EXPECT_EQ(required_output(shape_of(Collective::gather, 3, 2, 1), 0, 5).rule,
            Requirement::Rule::anything);
  expect_exactly(required_output(shape_of(Collective::scatter, 3, 2, 1), 2, 1), {{1, 5}}, false);
  // Block b of rank r is block r of rank b.
  expect_exactly(required_output(shape_of(Collective::all_to_all, 3, 2), 1, 5), {{2, 3}}, false);
  // Everybody sends two to the right.
  expect_exactly(required_output(shape_of(Collective::send_recv, 5, 1, 2), 1, 0), {{4, 0}}, false);
}

TEST(Contract, BarrierHearsOfEverybodyAtLeastOnce) {
  const Requirement requirement = required_output(shape_of(Collective::barrier, 2, 1), 0, 0);
  EXPECT_EQ(requirement.rule, Requirement::Rule::at_least);
  EXPECT_EQ(requirement.atoms, (Atoms{{0, 0}, {1, 0}}));
  EXPECT_FALSE(requirement.finished);
}

TEST(Contract, GatherAndScatterAreInPlaceOnTheRoot) {
  const auto gather = shape_of(Collective::gather, 3, 2, 1);
  EXPECT_EQ(contract_alias(gather, 1, 0), 2);
  EXPECT_EQ(contract_alias(gather, 0, 0), -1);
  const auto scatter = shape_of(Collective::scatter, 3, 2, 1);
  EXPECT_EQ(contract_alias(scatter, 1, 3), 1);
  EXPECT_EQ(contract_alias(scatter, 1, 4), -1);
  EXPECT_EQ(contract_alias(scatter, 2, 4), -1);
}

TEST(Contract, OnlyTheRootOfABroadcastHasContent) {
  const auto shape = shape_of(Collective::broadcast, 3, 1, 1);
  EXPECT_FALSE(has_content(shape, 0));
  EXPECT_TRUE(has_content(shape, 1));
  EXPECT_TRUE(has_content(shape_of(Collective::reduce, 3, 1, 1), 0));
  EXPECT_FALSE(has_content(shape_of(Collective::scatter, 3, 1, 1), 2));
  EXPECT_TRUE(has_content(shape_of(Collective::gather, 3, 1, 1), 2));
}

// Two tellings of the same geometry, by different code.
TEST(Contract, GeometryAgreesWithTheSchedules) {
  for (Collective collective : kAllCollectives)
    for (int ranks = 1; ranks <= 5; ++ranks)
      for (int chunks : {1, 2, 3}) {
        ScheduleShape shape = shape_of(collective, ranks, chunks);
        shape.scratch_blocks = 2;
        for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch})
          EXPECT_EQ(contract_chunks(shape, buffer), block_count(shape, buffer) * chunks);
        for (Rank rank = 0; rank < ranks; ++rank)
          for (int chunk = 0; chunk < contract_chunks(shape, Buffer::input); ++chunk)
            EXPECT_EQ(contract_alias(shape, rank, chunk), aliased_chunk(shape, rank, chunk))
                << to_string(collective) << " rank " << rank << " chunk " << chunk;
      }
}

TEST(Contract, RefusesShapesThatMakeNoSense) {
  const ScheduleShape good = shape_of(Collective::broadcast, 4, 2, 3);
  EXPECT_TRUE(check_shape(good).ok());
  auto refused = [&](auto change) {
    ScheduleShape shape = good;
    change(shape);
    return check_shape(shape).code() == StatusCode::invalid_argument;
  };
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.ranks = 0; }));
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.ranks = 1 << 30; }));
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.root = 4; }));
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.root = -1; }));
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.chunks = 0; }));
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.chunks = 1 << 30; }));
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.scratch_blocks = -1; }));
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.message_chunks_max = 0; }));
  EXPECT_TRUE(refused([](ScheduleShape& s) { s.collective = Collective::barrier; }));
}

}  // namespace
}  // namespace tutti::collectives
