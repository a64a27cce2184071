// The verifier on two-sided schedules that are written by hand: right ones, and for every kind of
// fault some that have it and nothing else.
#include "collectives/verifier.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/collectives/schedules_by_hand.hpp"

namespace tutti::collectives {
namespace {

using namespace testing;
using ::testing::HasSubstr;

Verdict verdict_of(const TwoSidedWorld& world, const VerifyOptions& options = {}) {
  return verify(world.shape, world.programs, options);
}

void expect_fault(const TwoSidedWorld& world, Fault fault, const std::string& reason) {
  const Verdict verdict = verdict_of(world);
  EXPECT_EQ(to_string(verdict.fault), to_string(fault)) << verdict.reason;
  EXPECT_THAT(verdict.reason, HasSubstr(reason));
}

TEST(Verifier, ProvesWhatIsRight) {
  EXPECT_EQ(verdict_of(exchange()).reason, "");
  EXPECT_EQ(verdict_of(ring_of_three()).reason, "");
  EXPECT_EQ(verdict_of(chain_of_three()).reason, "");
}

// Once with separate buffers, once in place.
TEST(Verifier, CountsStepsAndMessages) {
  EXPECT_EQ(verdict_of(exchange()).steps, 2 * 4);
  EXPECT_EQ(verdict_of(exchange()).messages, 2 * 2);
  VerifyOptions options;
  options.in_place = false;
  EXPECT_EQ(verdict_of(exchange(), options).steps, 4);
}

TEST(Verifier, ProvesRangesOfChunks) {
  TwoSidedWorld world{shape_of(Collective::all_gather, 2, 3), {}};
  world.shape.message_chunks_max = 3;
  for (Rank rank : {0, 1}) {
    const Rank other = 1 - rank;
    world.programs.push_back({copy(in(0, 3), {out(rank * 3, 3), with(other, 3)}),
                              copy(with(other, 3), {out(other * 3, 3)})});
  }
  EXPECT_EQ(verdict_of(world).reason, "");
  world.shape.message_chunks_max = 2;
  expect_fault(world, Fault::malformed, "a message of 3 chunks where at most 2");
}

TEST(Verifier, ProvesOneRankAlone) {
  TwoSidedWorld world{shape_of(Collective::all_reduce, 1, 2), {}};
  world.programs = {{finish({in(0, 2)}, {out(0, 2)})}};
  EXPECT_EQ(verdict_of(world).reason, "");
  world.programs = {{copy(in(0, 2), {out(0, 2)})}};
  expect_fault(world, Fault::contract, "was never finished");
}

// ---- malformed ----

TEST(Verifier, RefusesStepsWithoutSense) {
  auto refused = [](ExpandedStep step, const std::string& reason) {
    TwoSidedWorld world = exchange();
    world.shape.chunks = 2;
    world.shape.scratch_blocks = 1;
    world.programs[0].push_back(std::move(step));
    expect_fault(world, Fault::malformed, reason);
  };
  refused(copy(in(2), {out(0)}), "rank 0 step 2 (copy): input[2] lies outside");
  refused(copy(in(-1), {out(1)}), "outside");
  refused(copy(in(1, 2), {out(1, 2)}), "outside");
  refused(copy(in(0, 0), {out(0, 0)}), "outside");
  refused(copy(in(0), {out(1)}), "different positions");
  refused(copy(in(0), {out(0, 2)}), "operands of 1 and 2 chunks");
  refused(copy(out(0), {in(0)}), "writes input[0]");
  refused(copy(with(1), {with(1)}), "no operand in memory");
  refused(copy(in(0), {}), "no source or destination");
  refused(reduce({}, {out(0)}), "no source or destination");
  refused(ExpandedStep{StepKind::copy, false, {in(0), in(0)}, {out(0)}, {}}, "one source, not 2");
  refused(ExpandedStep{StepKind::copy, true, {in(0)}, {out(0)}, {}}, "only a reduce can finish");
  refused(copy(in(0), {with(1), with(1)}), "two messages of rank 1 at once");
  refused(copy(in(0), {out(0)}, {2}), "depends on step 2, which is not an earlier one");
  refused(copy(in(0), {out(0)}, {-1}), "not an earlier one");
}

TEST(Verifier, RefusesPeersThatAreNone) {
  for (Rank peer : {0, 2, -1}) {
    TwoSidedWorld world = exchange();
    world.programs[0].push_back(copy(in(0), {with(peer)}));
    expect_fault(world, Fault::malformed, "cannot be a peer");
  }
}

TEST(Verifier, RefusesShapesWithoutSense) {
  TwoSidedWorld world = exchange();
  world.shape.chunks = 0;
  expect_fault(world, Fault::malformed, "0 chunks");
  world = exchange();
  world.programs.pop_back();
  expect_fault(world, Fault::malformed, "1 programs for 2 ranks");
}

// ---- unmatched ----

TEST(Verifier, RefusesMessagesWithOneEnd) {
  TwoSidedWorld world = exchange();
  world.programs[0].erase(world.programs[0].begin());
  world.programs[0][0].depends.clear();
  expect_fault(world, Fault::unmatched, "rank 1 receives 1 messages from rank 0, which sends none");
}

TEST(Verifier, RefusesMessagesThatNobodyTakes) {
  TwoSidedWorld world = exchange();
  world.programs[0].push_back(copy(in(0), {with(1)}));
  expect_fault(world, Fault::unmatched, "rank 0 sends 2 messages to rank 1, which receives 1");
}

TEST(Verifier, RefusesMessagesOfAnotherPosition) {
  TwoSidedWorld world{shape_of(Collective::broadcast, 2, 2), {}};
  world.programs = {{copy(in(0), {out(0), with(1)}), copy(in(1), {out(1), with(1)})},
                    {copy(with(0), {out(1)}), copy(with(0), {out(0)})}};
  expect_fault(world, Fault::unmatched,
               "message 0 from rank 0 (step 0) to rank 1 (step 0): position 0 against 1");
}

// ---- deadlock ----

TEST(Verifier, FindsStepsThatWaitForEachOther) {
  TwoSidedWorld world = exchange();
  for (ExpandedProgram& program : world.programs)
    program = {copy(with(program[1].sources[1].index), {out(0)}),
               copy(in(0), {program[0].destinations[0]}, {0})};
  expect_fault(world, Fault::deadlock,
               "rank 0 step 1 (copy) waits until rank 0 step 0 (copy) is complete");
  EXPECT_THAT(verdict_of(world).reason, HasSubstr("waits for the message of rank 1 step 1 (copy)"));
}

// Steps that receive and pass on at once need their own message out of the way.
TEST(Verifier, FindsQueuesThatAreTooSmall) {
  VerifyOptions options;
  options.queue_messages = 1;
  const Verdict verdict = verdict_of(ring_of_three(), options);
  EXPECT_EQ(verdict.fault, Fault::deadlock);
  EXPECT_THAT(verdict.reason, HasSubstr("waits for room in the queue"));
  EXPECT_TRUE(verdict_of(chain_of_three(), options).ok());
}

// ---- race ----

TEST(Verifier, FindsARaceThatExistsInPlaceOnly) {
  TwoSidedWorld world = exchange();
  world.programs[1][1].depends.clear();
  expect_fault(world, Fault::race, "output[0] of rank 1");
  EXPECT_THAT(verdict_of(world).reason, HasSubstr("(in place)"));
  VerifyOptions options;
  options.in_place = false;
  EXPECT_TRUE(verdict_of(world, options).ok());
}

TEST(Verifier, FindsReadsThatAWriteMayOvertake) {
  TwoSidedWorld world{shape_of(Collective::send_recv, 1), {}};
  world.shape.scratch_blocks = 1;
  world.programs = {{copy(in(0), {scratch(0)}), copy(scratch(0), {out(0)}, {0})}};
  EXPECT_EQ(verdict_of(world).reason, "");
  world.programs[0][1].depends.clear();
  expect_fault(world, Fault::race, "rank 0 step 1 (copy) reads scratch[0] of rank 0 while");
}

// Order through other ranks counts.
TEST(Verifier, AcceptsAnOrderThatMessagesKeep) {
  TwoSidedWorld world{shape_of(Collective::broadcast, 2), {}};
  world.programs = {{copy(in(0), {with(1)}), copy(with(1), {out(0)})},
                    {copy(with(0), {out(0)}), copy(out(0), {with(0)}, {0})}};
  // In place rank 0 overwrites what it has sent, but only with what came back.
  EXPECT_EQ(verdict_of(world).reason, "");
}

// A range copied onto itself with a shift: which element is read first decides the result.
TEST(Verifier, FindsRangesShiftedOverThemselves) {
  TwoSidedWorld world{shape_of(Collective::all_to_all, 3), {}};
  world.shape.scratch_blocks = 3;
  world.programs.assign(
      3, {copy(in(0, 2), {scratch(0, 2)}), copy(scratch(0, 2), {scratch(1, 2)}, {0})});
  expect_fault(world, Fault::race, "shifts scratch[1] of rank 0 over itself");
}

// ---- contract ----

TEST(Verifier, FindsWrongValues) {
  TwoSidedWorld twice = exchange();
  twice.programs[0][1].sources.push_back(in(0));
  expect_fault(twice, Fault::contract, "finishes what is not complete: {0.0 x2, 1.0}");

  TwoSidedWorld unfinished = exchange();
  unfinished.programs[1][1].finish = false;
  expect_fault(unfinished, Fault::contract, "output[0] of rank 1 was never finished");

  TwoSidedWorld early = exchange();
  early.programs[0][0] = finish({in(0)}, {with(1)});
  expect_fault(early, Fault::contract, "finishes what is not complete: {0.0}");

  TwoSidedWorld again = exchange();
  again.programs[0].push_back(finish({out(0)}, {out(0)}, {1}));
  expect_fault(again, Fault::contract, "goes on with a result that is finished");

  TwoSidedWorld missing = exchange();
  missing.programs[0][1].destinations[0] = scratch(0);
  missing.shape.scratch_blocks = 1;
  expect_fault(missing, Fault::contract, "output[0] of rank 0 holds nothing defined");

  TwoSidedWorld undefined = exchange();
  undefined.shape.scratch_blocks = 1;
  undefined.programs[0][0] = copy(scratch(0), {with(1)});
  expect_fault(undefined, Fault::contract, "rank 0 step 0 (copy) reads what nobody has written");

  TwoSidedWorld wrong = ring_of_three();
  wrong.programs[2][1].destinations[0] = out(0);
  wrong.programs[2][2].destinations[0] = out(1);
  expect_fault(wrong, Fault::contract, "output[0] of rank 2 holds {1.0} instead of {0.0}");
}

TEST(Verifier, FinishesNothingThatIsNoReduction) {
  TwoSidedWorld world{shape_of(Collective::broadcast, 1), {}};
  world.programs = {{finish({in(0)}, {out(0)})}};
  expect_fault(world, Fault::contract, "output[0] of rank 0 was finished");
}

TEST(Verifier, LetsNobodyReadABroadcastsInputButTheRoots) {
  TwoSidedWorld world = chain_of_three();
  world.programs[2].push_back(copy(in(0), {out(0)}, {0}));
  VerifyOptions options;
  options.in_place = false;
  EXPECT_EQ(verdict_of(world, options).fault, Fault::contract);
}

TEST(Verifier, BarrierNeedsToHearOfEverybody) {
  TwoSidedWorld world{shape_of(Collective::barrier, 2), {}};
  for (Rank rank : {0, 1})
    world.programs.push_back(
        {copy(in(0), {with(1 - rank)}), reduce({in(0), with(1 - rank)}, {out(0)}, {0})});
  EXPECT_EQ(verdict_of(world).reason, "");
  world.programs[1][1].sources = {in(0), in(0)};
  world.programs[1][1].sources[1] = with(0);
  world.programs[1].push_back(copy(in(0), {out(0)}, {1}));
  VerifyOptions options;
  options.in_place = false;
  EXPECT_EQ(verdict_of(world, options).fault, Fault::contract);
}

}  // namespace
}  // namespace tutti::collectives
