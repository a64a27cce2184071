// The ways of messages: which they are, and that each way counts for itself.
#include "runtime/call_program.hpp"

#include <gtest/gtest.h>

#include "collectives/algorithms/table.hpp"
#include "collectives/lowering.hpp"

namespace tutti::runtime {
namespace {

CallProgram make(int ranks, Rank rank) {
  const auto algorithm = collectives::find_algorithm(Collective::all_reduce, "direct");
  const auto schedule = collectives::build(**algorithm, ranks, 0);
  return CallProgram(
      std::make_shared<collectives::LoweredProgram>(collectives::lower(*schedule, rank)));
}

std::vector<Way> ways(const CallProgram& program, const std::vector<std::uint32_t>& operands) {
  std::vector<Way> result;
  for (const std::uint32_t operand : operands) result.push_back(program.operand(operand).way);
  return result;
}

constexpr collectives::Addressable kAll{true, true, true};
using Ways = std::vector<Way>;

// Of a one-pass all_reduce: a rank offers its input to each peer, and pushes its result to it.
TEST(CallProgram, DecidesWhatItOffersBeforeThePeerIsKnown) {
  CallProgram program = make(3, 1);
  program.begin(false);
  const CallPeer& peer = program.peers()[1];
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::undecided, Way::undecided}));
  program.decide_offers(1, kAll);
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::pull, Way::undecided}));
  program.decide_all(1, kAll, kAll);
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::pull, Way::push}));
  EXPECT_EQ(ways(program, peer.receives), (Ways{Way::pull, Way::push}));
  for (const std::uint32_t operand : peer.sends) EXPECT_EQ(program.operand(operand).place, 0U);
  EXPECT_EQ(peer.sent, (std::array<std::uint32_t, kWayCount>{0, 1, 1}));
  // The other peer is another matter.
  EXPECT_EQ(ways(program, program.peers()[0].sends), (Ways{Way::undecided, Way::undecided}));
}

TEST(CallProgram, MemoryThatCannotBeAddressedIsStaged) {
  CallProgram program = make(2, 0);
  const CallPeer& peer = program.peers()[0];
  program.begin(false);
  program.decide_all(0, kAll, {.input = true});
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::pull, Way::staged}));
  EXPECT_EQ(ways(program, peer.receives), (Ways{Way::pull, Way::staged}));
  program.decide_all(0, {.input = true}, kAll);
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::pull, Way::staged}));
  EXPECT_EQ(ways(program, peer.receives), (Ways{Way::pull, Way::staged}));
  EXPECT_EQ(program.operand(peer.receives[1]).place, 0U);
}

// Who cannot share what the peer would touch does not store into the peer either, so it need not
// wait to hear of the peer's memory.
TEST(CallProgram, WhoCannotShareSendsAtOnce) {
  CallProgram program = make(2, 0);
  const CallPeer& peer = program.peers()[0];
  program.begin(false);
  program.decide_offers(0, {});
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::staged, Way::staged}));
  EXPECT_EQ(program.operand(peer.sends[1]).place, 1U);
  program.decide_all(0, {}, kAll);
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::staged, Way::staged}));
  EXPECT_EQ(ways(program, peer.receives), (Ways{Way::pull, Way::staged}));
  program.begin(false);
  program.decide_offers(0, {.input = true});  // the result would land where nobody can store
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::pull, Way::staged}));
}

// A result may be stored into memory whose contents the same step of the peer reads: only if it
// does read it there.
TEST(CallProgram, KnowsWhatIsReadyOnceBothWaysAreDecided) {
  CallProgram program = make(2, 0);
  const CallPeer& peer = program.peers()[0];
  const auto ready = [&](const std::vector<std::uint32_t>& operands) {
    std::vector<bool> result;
    for (const std::uint32_t operand : operands) result.push_back(program.operand(operand).ready);
    return result;
  };
  program.begin(false);
  program.decide_all(0, kAll, kAll);
  EXPECT_EQ(ready(peer.sends), (std::vector{true, true}));
  EXPECT_EQ(ready(peer.receives), (std::vector{true, true}));
  program.decide_all(0, kAll, {.output = true});  // the peer's input goes through the queue
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::pull, Way::push}));
  EXPECT_EQ(ready(peer.sends), (std::vector{true, false}));
  program.decide_all(0, {.output = true}, kAll);  // and ours
  EXPECT_EQ(ways(program, peer.receives), (Ways{Way::pull, Way::push}));
  EXPECT_EQ(ready(peer.receives), (std::vector{true, false}));
}

TEST(CallProgram, StagedCallsHaveNothingToDecide) {
  CallProgram program = make(2, 0);
  program.begin(false);
  program.decide_all(0, kAll, kAll);
  program.begin(true);
  const CallPeer& peer = program.peers()[0];
  EXPECT_EQ(ways(program, peer.sends), (Ways{Way::staged, Way::staged}));
  EXPECT_EQ(program.operand(peer.sends[1]).place, 1U);
  EXPECT_EQ(peer.received, (std::array<std::uint32_t, kWayCount>{2, 0, 0}));
}

TEST(CallProgram, EveryStepNamesAnOperandInMemory) {
  for (const collectives::Algorithm& algorithm : collectives::all_algorithms()) {
    if (!algorithm.shape(6, 1, 1).ok()) continue;
    const auto schedule = collectives::build(algorithm, 6, 1);
    const CallProgram program(
        std::make_shared<collectives::LoweredProgram>(collectives::lower(*schedule, 4)));
    for (const CallStep& step : program.steps())
      EXPECT_FALSE(program.operand(step.in_memory).is_message) << algorithm.name;
    for (const CallPeer& peer : program.peers())
      for (std::uint32_t k = 0; k < peer.sends.size(); ++k)
        EXPECT_EQ(program.operand(peer.sends[k]).ordinal, k) << algorithm.name;
  }
}

}  // namespace
}  // namespace tutti::runtime
