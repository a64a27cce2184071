// What is ready when its owner enters a call: what lowering says of it, and that a verifier that
// derives it from the lowered programs says the same.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "collectives/algorithms/table.hpp"
#include "collectives/builder.hpp"
#include "collectives/first_touches.hpp"
#include "collectives/lowering.hpp"
#include "collectives/verifier.hpp"

namespace tutti::collectives {
namespace {

std::vector<LoweredProgram> lowered(Collective collective, const char* name, int ranks) {
  return lower_all(*build(**find_algorithm(collective, name), ranks, 0, 1));
}

// Every message operand of a program that travels direct.
std::vector<LoweredOperand*> direct_messages(LoweredProgram& program) {
  std::vector<LoweredOperand*> found;
  for (LoweredStep& step : program.steps)
    for (auto* operands : {&step.sources, &step.destinations})
      for (LoweredOperand& operand : *operands)
        if (operand.kind == Operand::Kind::message && operand.direct != DirectForm::none)
          found.push_back(&operand);
  return found;
}

TEST(AtArrival, OnePassAlgorithmsWaitForNoWord) {
  for (const auto& [collective, name] : {std::pair{Collective::all_reduce, "direct"},
                                         {Collective::all_gather, "direct"},
                                         {Collective::reduce_scatter, "direct"},
                                         {Collective::all_to_all, "direct"},
                                         {Collective::broadcast, "direct"},
                                         {Collective::broadcast, "cooperative"}})
    for (LoweredProgram& program : lowered(collective, name, 4))
      for (const LoweredOperand* message : direct_messages(program))
        EXPECT_TRUE(message->at_arrival) << to_string(collective) << " " << name;
}

// A result lands where the peer reads the rank's input in the same pass.
TEST(AtArrival, AResultWaitsForThePullBesideIt) {
  std::vector<LoweredProgram> world = lowered(Collective::all_reduce, "direct", 2);
  for (const LoweredOperand* message : direct_messages(world[0]))
    EXPECT_EQ(message->beside, message->direct == DirectForm::push ? 0 : -1);
}

// What a ring passes on was not there before.
TEST(AtArrival, WhatIsPassedOnHasToBeOffered) {
  std::vector<LoweredProgram> world = lowered(Collective::all_gather, "ring", 4);
  int ready = 0;
  int offered = 0;
  for (LoweredProgram& program : world)
    for (const LoweredOperand* message : direct_messages(program))
      ++(message->at_arrival ? ready : offered);
  EXPECT_GT(ready, 0);
  EXPECT_GT(offered, 0);
}

// Rank 0 lets rank 1 overwrite chunk 0, in place, before it sends it on; and sends chunk 1 to two
// ranks before one of them overwrites it.
TEST(AtArrival, WhatAnEarlierStepTouchesIsNotReady) {
  Schedule schedule;
  schedule.shape.collective = Collective::all_reduce;
  schedule.shape.ranks = 3;
  schedule.shape.chunks = 2;
  schedule.program_of_rank = {0, 1, 2};
  const auto in = [](int chunk) { return Builder::input(chunk); };
  const auto out = [](int chunk) { return Builder::output(chunk); };
  Builder zero(schedule.shape, 0);
  zero.recv(1, out(0));
  zero.send(2, in(0));
  zero.send(1, in(1));
  zero.send(2, in(1));
  zero.recv(1, out(1));
  Builder one(schedule.shape, 1);
  one.copy(in(0), {Builder::into(0)});
  one.finish({in(1), Builder::from(0)}, {out(1), Builder::into(0)});
  Builder two(schedule.shape, 2);
  two.recv(0, out(0));
  two.recv(0, out(1));
  for (Builder* builder : {&zero, &one, &two}) schedule.programs.push_back(builder->take());
  const std::vector<LoweredProgram> world = lower_all(schedule);
  EXPECT_TRUE(world[0].steps[0].sources[0].at_arrival) << "nobody has touched it";
  EXPECT_FALSE(world[0].steps[1].destinations[0].at_arrival) << "in place, it was overwritten";
  EXPECT_FALSE(world[2].steps[0].sources[0].at_arrival) << "its other end";
  EXPECT_TRUE(world[0].steps[2].destinations[0].at_arrival);
  EXPECT_FALSE(world[0].steps[4].sources[0].at_arrival) << "rank 2 may still read it";
  EXPECT_FALSE(world[1].steps[1].destinations[1].at_arrival) << "its other end";
}

// Says at both ends of a message that it is ready though it is not, or the other way round at one.
void expect_found(std::vector<LoweredProgram> world,
                  const std::function<bool(LoweredOperand&)>& change, const char* reason) {
  const Addressability all = all_direct(static_cast<int>(world.size()));
  ASSERT_EQ(verify_lowered(world, all).reason, "");
  bool changed = false;
  for (LoweredProgram& program : world)
    for (LoweredOperand* message : direct_messages(program)) changed |= change(*message);
  ASSERT_TRUE(changed);
  const Verdict verdict = verify_lowered(world, all);
  EXPECT_NE(verdict.reason.find(reason), std::string::npos) << verdict.reason;
}

TEST(AtArrival, TheVerifierFindsWhatIsNotReady) {
  const auto all = [](LoweredOperand& message) {
    const bool was = message.at_arrival;
    message.at_arrival = true;
    return !was;
  };
  expect_found(lowered(Collective::all_gather, "ring", 4), all, "at arrival");
  expect_found(lowered(Collective::all_reduce, "ring", 4), all, "at arrival");
  const auto alone = [](LoweredOperand& message) {
    message.beside = -1;
    return true;
  };
  expect_found(lowered(Collective::all_reduce, "direct", 2), alone, "be stored at arrival");
  const auto at_one_end = [](LoweredOperand& message) {
    message.at_arrival = message.at_arrival && message.mine;
    return true;
  };
  expect_found(lowered(Collective::all_gather, "direct", 2), at_one_end, "at both ends");
}

TEST(FirstTouches, KeepTheTwoEarliest) {
  FirstTouches::Two two;
  for (const int step : {5, 3, 5, FirstTouches::kNever, 4, 3}) two.add(step);
  EXPECT_EQ(two.first, 3);
  EXPECT_EQ(two.second, 4);
}

TEST(FirstTouches, InPlaceMemoryIsOnePlace) {
  ScheduleShape shape;
  shape.collective = Collective::all_reduce;
  shape.ranks = 2;
  shape.chunks = 2;
  const auto chunk = [](Buffer buffer, int index) {
    ExpandedOperand operand;
    operand.buffer = buffer;
    operand.index = index;
    return operand;
  };
  ExpandedProgram program(2);
  program[0].sources = {chunk(Buffer::input, 0)};
  program[0].destinations = {chunk(Buffer::output, 1)};
  program[1].sources = {chunk(Buffer::input, 1)};
  program[1].destinations = {chunk(Buffer::output, 0)};
  const FirstTouches touches(shape, 0, program);
  EXPECT_EQ(touches.first_write(chunk(Buffer::input, 0)), 1);
  EXPECT_EQ(touches.first_write(chunk(Buffer::input, 1)), 0);
  EXPECT_EQ(touches.first_two(chunk(Buffer::output, 0)).first, 0) << "read as the input";
  EXPECT_EQ(touches.first_two(chunk(Buffer::output, 0)).second, 1);
  EXPECT_TRUE(touches.same_memory(chunk(Buffer::input, 1), chunk(Buffer::output, 1)));
  EXPECT_FALSE(touches.same_memory(chunk(Buffer::input, 1), chunk(Buffer::output, 0)));
}

}  // namespace
}  // namespace tutti::collectives
