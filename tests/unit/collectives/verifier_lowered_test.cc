// The verifier on lowered programs: hand-written worlds in which messages are pulled and pushed,
// each single disagreement that makes them wrong, and all algorithms under all kinds of mixtures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"
#include "collectives/mutate.hpp"
#include "collectives/verifier.hpp"

namespace tutti::collectives {
namespace {

using ::testing::HasSubstr;

LoweredOperand memory(Buffer buffer, int chunk = 0) {
  LoweredOperand operand;
  operand.buffer = buffer;
  operand.chunk = chunk;
  return operand;
}

LoweredOperand message(DirectForm direct, bool mine, Buffer buffer, int ordinal = 0) {
  LoweredOperand operand = memory(buffer);
  operand.kind = Operand::Kind::message;
  operand.direct = direct;
  operand.mine = mine;
  operand.ordinal = ordinal;
  return operand;
}

LoweredStep step(StepKind kind, std::vector<LoweredOperand> sources,
                 std::vector<LoweredOperand> destinations, int landing,
                 std::vector<LoweredDependency> depends = {}) {
  LoweredStep result;
  result.kind = kind;
  result.sources = std::move(sources);
  result.destinations = std::move(destinations);
  result.landing = landing;
  result.depends = std::move(depends);
  return result;
}

LoweredWorld two_ranks(Collective collective) {
  LoweredWorld world(2);
  for (Rank rank : {0, 1}) {
    LoweredProgram& program = world[static_cast<std::size_t>(rank)];
    program.shape.collective = collective;
    program.shape.ranks = 2;
    program.rank = rank;
    program.peers = {1 - rank};
    program.sends = {0};
    program.receives = {0};
  }
  return world;
}

constexpr auto kIn = Buffer::input;
constexpr auto kOut = Buffer::output;

// Broadcast: rank 0 offers its input, rank 1 reads it there.
LoweredWorld pulled() {
  LoweredWorld world = two_ranks(Collective::broadcast);
  world[0].sends = world[1].receives = {1};
  world[0].steps = {
      step(StepKind::copy, {memory(kIn)}, {memory(kOut), message(DirectForm::pull, true, kIn)}, 0)};
  world[1].steps = {
      step(StepKind::copy, {message(DirectForm::pull, false, kIn)}, {memory(kOut)}, 0)};
  return world;
}

// All-reduce: rank 1 offers its input; rank 0 adds it to its own and stores the sum into both
// outputs. In place, rank 1's input is what gets overwritten, by the pass that reads it.
LoweredWorld one_pass() {
  LoweredWorld world = two_ranks(Collective::all_reduce);
  for (LoweredProgram& program : world) program.sends = program.receives = {1};
  world[0].steps = {step(StepKind::reduce, {memory(kIn), message(DirectForm::pull, false, kIn)},
                         {memory(kOut), message(DirectForm::push, false, kOut)}, 0)};
  world[0].steps[0].finish = true;
  world[1].steps = {step(StepKind::copy, {memory(kIn)}, {message(DirectForm::pull, true, kIn)}, -1),
                    step(StepKind::copy, {message(DirectForm::push, true, kOut)}, {memory(kOut)}, 0,
                         {{0, true}})};
  return world;
}

void expect_fault(const LoweredWorld& world, const Addressability& addressable, Fault fault,
                  const std::string& reason) {
  const Verdict verdict = verify_lowered(world, addressable);
  EXPECT_EQ(to_string(verdict.fault), to_string(fault)) << verdict.reason;
  EXPECT_THAT(verdict.reason, HasSubstr(reason));
}

TEST(VerifierLowered, ProvesPullsAndPushesUnderEveryMixture) {
  for (const LoweredWorld& world : {pulled(), one_pass()})
    for (int bits = 0; bits < 64; ++bits) {
      Addressability addressable(2);
      for (Rank rank : {0, 1}) {
        const int mine = bits >> (3 * rank);
        addressable.of(rank, 1 - rank) = {(mine & 1) != 0, (mine & 2) != 0, (mine & 4) != 0};
      }
      EXPECT_EQ(verify_lowered(world, addressable).reason, "") << bits;
    }
}

TEST(VerifierLowered, FusionIsNeededAndOnlyItMayBeWaived) {
  LoweredWorld waits = one_pass();
  waits[1].steps[1].depends[0].fused = false;
  expect_fault(waits, all_direct(2), Fault::deadlock, "waits for memory that rank 1 step 1");
  EXPECT_TRUE(verify_lowered(waits, all_staged(2)).ok());

  LoweredWorld never_waits = one_pass();
  never_waits[1].steps[1].depends.clear();
  EXPECT_TRUE(verify_lowered(never_waits, all_direct(2)).ok());
  // Staged, the order still follows from the messages: what arrives was made of what was sent.
  EXPECT_TRUE(verify_lowered(never_waits, all_staged(2)).ok());

  LoweredWorld wrongly = pulled();
  wrongly[0].steps.push_back(step(StepKind::copy, {memory(kIn)}, {memory(kOut)}, 0, {{0, true}}));
  expect_fault(wrongly, all_direct(2), Fault::malformed, "is fused with step 0");
}

// A rank may not overwrite what it has offered until the peer has read it.
TEST(VerifierLowered, FindsMemoryThatIsOverwrittenWhileOffered) {
  LoweredWorld world = pulled();
  for (LoweredProgram& program : world) program.shape.scratch_blocks = 1;
  LoweredStep& offer = world[0].steps[0];
  offer = step(StepKind::copy, {memory(Buffer::scratch)},
               {message(DirectForm::pull, true, Buffer::scratch)}, -1, {{0, false}});
  world[0].steps.insert(world[0].steps.begin(), step(StepKind::copy, {memory(kIn)},
                                                     {memory(kOut), memory(Buffer::scratch)}, 0));
  world[1].steps[0].sources[0].buffer = Buffer::scratch;
  world[0].steps.push_back(
      step(StepKind::copy, {memory(kIn)}, {memory(Buffer::scratch)}, 0, {{1, false}}));
  EXPECT_EQ(verify_lowered(world, all_direct(2)).reason, "");
  world[0].steps[2].depends = {{0, false}};
  expect_fault(world, all_direct(2), Fault::race, "scratch[0] of rank 0");
}

TEST(VerifierLowered, FindsEndsThatDisagree) {
  auto unmatched = [](LoweredWorld world, auto change, const std::string& reason) {
    change(world[1].steps[0].sources[0]);
    const Verdict verdict = verify_lowered(world, all_direct(2));
    EXPECT_EQ(to_string(verdict.fault), "unmatched") << verdict.reason;
    EXPECT_THAT(verdict.reason, HasSubstr(reason));
  };
  unmatched(
      pulled(), [](LoweredOperand& o) { o.direct = DirectForm::none; }, "direct forms");
  unmatched(
      pulled(), [](LoweredOperand& o) { o.buffer = kOut; }, "input[0] against output[0]");
  unmatched(
      pulled(), [](LoweredOperand& o) { o.chunk = 1; }, "input[0] against input[1]");

  auto malformed = [](auto change, const std::string& reason) {
    LoweredWorld world = one_pass();
    change(world);
    expect_fault(world, all_direct(2), Fault::malformed, reason);
  };
  malformed([](LoweredWorld& w) { w[0].steps[0].sources[1].mine = true; }, "pulls its own memory");
  malformed([](LoweredWorld& w) { w[0].steps[0].destinations[1].mine = true; }, "pushes to itself");
  malformed([](LoweredWorld& w) { w[0].steps[0].sources[1].ordinal = 1; }, "out of order");
  malformed([](LoweredWorld& w) { w[0].steps[0].sources[1].stream = 1; }, "stream 1");
  malformed([](LoweredWorld& w) { w[0].sends[0] = 2; }, "announces 2 messages");
  malformed([](LoweredWorld& w) { w[0].peers[0] = 0; }, "rank 0 cannot be a peer");
  malformed([](LoweredWorld& w) { w[0].rank = 1; }, "for another rank");
  malformed([](LoweredWorld& w) { w[0].shape.chunks = 2; }, "rank or shape");
  malformed([](LoweredWorld& w) { w[1].steps[1].landing = 1; }, "does not exist");
  malformed([](LoweredWorld& w) { w[0].steps[0].landing = 1; }, "lands in a message");
  malformed([](LoweredWorld& w) { w[1].steps[1].landing = -1; }, "does not land there");
  malformed([](LoweredWorld& w) { w[1].steps[0].destinations[0].buffer = kOut; },
            "does not hold the content there");
  malformed([](LoweredWorld& w) { w[1].steps[1].kind = StepKind::reduce; },
            "reduces what is pushed");
}

// Both ends agree, and yet the memory is the wrong one.
TEST(VerifierLowered, FindsPushesIntoInputs) {
  LoweredWorld world = one_pass();
  world[0].steps[0].destinations[1].buffer = kIn;
  world[1].steps[1].sources[0].buffer = kIn;
  world[1].steps[1].destinations[0].buffer = kIn;
  expect_fault(world, all_direct(2), Fault::malformed, "writes input[0]");
}

// Two partners that overwrite what they exchange: pulling makes them wait for each other.
TEST(VerifierLowered, FindsExchangesThatMustBeQueued) {
  LoweredWorld world = two_ranks(Collective::all_reduce);
  for (LoweredProgram& program : world) {
    program.sends = program.receives = {1};
    program.steps = {
        step(StepKind::copy, {memory(kIn)}, {message(DirectForm::pull, true, kIn)}, -1),
        step(StepKind::reduce, {memory(kIn), message(DirectForm::pull, false, kIn)}, {memory(kOut)},
             0, {{0, false}})};
    program.steps[1].finish = true;
  }
  expect_fault(world, all_direct(2), Fault::deadlock, "has taken what it offers");
  EXPECT_EQ(verify_lowered(world, all_staged(2)).reason, "");
  for (LoweredProgram& program : world) program.steps[1].depends.clear();
  expect_fault(world, all_direct(2), Fault::race, "(in place)");
}

TEST(VerifierLowered, ProvesAllAlgorithmsUnderMixtures) {
  for (const Algorithm& algorithm : all_algorithms())
    for (int ranks = 1; ranks <= 6; ++ranks) {
      const Rank root = has_root(algorithm.collective) ? ranks / 2 : 0;
      const Result<Schedule> schedule = build(algorithm, ranks, root, 2);
      if (!schedule.ok()) continue;
      const LoweredWorld world = lower_all(*schedule);
      auto expect_proved = [&](const Addressability& addressable) {
        EXPECT_EQ(verify_lowered(world, addressable).reason, "")
            << to_string(algorithm.collective) << "/" << algorithm.name << ", " << ranks
            << " ranks";
      };
      expect_proved(all_staged(ranks));
      expect_proved(all_direct(ranks));
      expect_proved(direct_within(ranks, 2));
      for (std::uint64_t seed = 0; seed < 6; ++seed) expect_proved(some_direct(ranks, seed));
    }
}

TEST(VerifierLowered, ProvesPointToPoint) {
  constexpr int kRanks = 3;
  LoweredWorld world;
  for (Rank rank = 0; rank < kRanks; ++rank)
    world.push_back(lower_point_to_point(kRanks, rank, (rank + 1) % kRanks, (rank + 2) % kRanks));
  for (LoweredProgram& program : world) program.shape.root = 1;  // as a shift by one
  EXPECT_EQ(verify_lowered(world, all_staged(kRanks)).reason, "");
  EXPECT_EQ(verify_lowered(world, all_direct(kRanks)).reason, "");
}

}  // namespace
}  // namespace tutti::collectives
