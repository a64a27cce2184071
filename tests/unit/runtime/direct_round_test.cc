// Short direct calls made again: which programs are such, that such calls give what others give,
// wherever the general way takes over, and that what is not as before goes that way.
#include "runtime/direct_round.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"
#include "unit/runtime/rounds.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

constexpr collectives::Addressable kAll{true, true, true};
constexpr std::size_t kBytes = 300;        // of a cut
constexpr std::size_t kManyFrames = 5000;  // elements
// Of the last one, what a rank copies for itself does not wait.
constexpr std::size_t kCounts[] = {1, 2, 13, 100, kManyFrames, 20'000};

bool has_direct_round(const Calls& calls, int ranks, Rank rank,
                      const collectives::Addressable& shared = kAll) {
  const auto algorithm = collectives::find_algorithm(calls.collective, calls.algorithm);
  const auto copies = calls.pulls ? collectives::Copies::pulled : collectives::Copies::pushed;
  CallProgram program(std::make_shared<collectives::LoweredProgram>(
      collectives::lower(*collectives::build(**algorithm, ranks, 0), rank, copies)));
  ShortProgram steps;
  steps.lay_out(program, collectives::Geometry(kBytes, program.lowered().shape.chunks, 1, 1), 1, 0);
  program.begin(false);
  for (std::size_t peer = 0; peer < program.peers().size(); ++peer) {
    program.decide_offers(peer, shared);
    program.decide_all(peer, shared, kAll);
  }
  DirectRound round;
  round.lay_out(program, steps);
  return !round.empty();
}

// Those that the planner takes for short direct calls.
constexpr Calls kCalls[] = {
    {Collective::all_reduce, "direct", true, false},
    {Collective::all_gather, "direct", true, false},
    {Collective::all_gather, "direct", true, true},
    {Collective::reduce_scatter, "direct", true, false},
    {Collective::all_to_all, "direct", true, false},
    {Collective::all_to_all, "direct", true, true},
    {Collective::broadcast, "direct", true, false},
    {Collective::broadcast, "cooperative", true, false},
};

TEST(DirectRound, IsWhatWaitsForNothingOnceAllAreThere) {
  for (const Calls& calls : kCalls)
    for (int ranks = 2; ranks <= 5; ++ranks)
      for (Rank rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(std::string(to_string(calls.collective)) + " " + std::string(calls.algorithm) +
                     " of " + std::to_string(ranks));
        EXPECT_TRUE(has_direct_round(calls, ranks, rank)) << rank;
      }
  for (const std::string_view name : {"ring", "doubling"})
    EXPECT_FALSE(has_direct_round({Collective::all_reduce, name, true, false}, 4, 1)) << name;
}

TEST(DirectRound, IsNotWhatIsStagedInPart) {
  for (const Calls& calls : kCalls)
    EXPECT_FALSE(has_direct_round(calls, 2, 0, {})) << to_string(calls.collective);
}

// ---- Programs of two ranks, by hand ----

using collectives::DirectForm;
using collectives::LoweredOperand;
using collectives::LoweredStep;

LoweredOperand mine(Buffer buffer, int chunk) {
  LoweredOperand operand;
  operand.kind = Operand::Kind::chunks;
  operand.buffer = buffer;
  operand.chunk = chunk;
  return operand;
}

LoweredOperand message(DirectForm form, Buffer buffer, int chunk, bool in_own_memory) {
  LoweredOperand operand;
  operand.kind = Operand::Kind::message;
  operand.direct = form;
  operand.mine = in_own_memory;
  operand.buffer = buffer;
  operand.chunk = chunk;
  operand.at_arrival = true;
  return operand;
}

LoweredStep copy(LoweredOperand from, LoweredOperand to) {
  LoweredStep step;
  step.sources = {from};
  step.destinations = {to};
  return step;
}

// Of a call with two chunks, in which the peer's first chunk is loaded, the own first one is
// offered, and the second one is stored by the peer.
struct ByHand {
  Collective collective = Collective::all_reduce;
  LoweredStep loads =
      copy(message(DirectForm::pull, Buffer::input, 0, false), mine(Buffer::output, 0));
  LoweredStep offers =
      copy(mine(Buffer::input, 0), message(DirectForm::pull, Buffer::input, 0, true));
  LoweredStep lands =
      copy(message(DirectForm::push, Buffer::output, 1, true), mine(Buffer::output, 1));

  DirectRound round(const std::vector<LoweredStep>& steps) const {
    auto lowered = std::make_shared<collectives::LoweredProgram>();
    lowered->shape.collective = collective;
    lowered->shape.ranks = lowered->shape.chunks = 2;
    lowered->peers = {1};
    lowered->sends = lowered->receives = {0};
    lowered->steps = steps;
    for (LoweredStep& step : lowered->steps)
      for (auto* operands : {&step.sources, &step.destinations})
        for (LoweredOperand& operand : *operands)
          if (operand.kind == Operand::Kind::message)
            operand.ordinal = (operands == &step.sources ? lowered->receives : lowered->sends)[0]++;
    CallProgram program(lowered);
    ShortProgram laid;
    laid.lay_out(program, collectives::Geometry(kBytes, 2, 1, 1), 1, 0);
    program.begin(false);
    program.decide_all(0, kAll, kAll);
    DirectRound made;
    made.lay_out(program, laid);
    return made;
  }
};

TEST(DirectRound, HearsOfWhatThePeerStoresAndTakes) {
  const ByHand by_hand;
  const DirectRound round = by_hand.round({by_hand.offers, by_hand.loads, by_hand.lands});
  ASSERT_EQ(round.actions().size(), 2U);
  EXPECT_EQ(round.early(), 1U) << "who offers needs no peer";
  ASSERT_EQ(round.ends().size(), 2U);
  EXPECT_EQ(round.ends()[0].which, Signal::taken);
  EXPECT_FALSE(round.ends()[0].of_received);
  EXPECT_EQ(round.ends()[1].which, Signal::produced);
  EXPECT_TRUE(round.ends()[1].of_received);
  EXPECT_EQ(round.ends()[1].ordinal, 1U);
}

TEST(DirectRound, IsNotWhatIsNotReadyAtArrival) {
  for (LoweredStep ByHand::*step : {&ByHand::loads, &ByHand::offers, &ByHand::lands}) {
    ByHand by_hand;
    EXPECT_FALSE(by_hand.round({by_hand.*step}).empty());
    for (auto* operands : {&(by_hand.*step).sources, &(by_hand.*step).destinations})
      operands->front().at_arrival = false;
    EXPECT_TRUE(by_hand.round({by_hand.*step}).empty());
  }
}

TEST(DirectRound, IsNotWhatComesAfterThePeerIsThrough) {
  const ByHand by_hand;
  LoweredStep after = copy(mine(Buffer::input, 1), mine(Buffer::input, 0));
  after.depends = {{0, false}};
  EXPECT_TRUE(by_hand.round({by_hand.offers, after}).empty()) << "it was offered";
  EXPECT_TRUE(by_hand.round({by_hand.lands, after}).empty()) << "the peer stores it";
  LoweredStep lands = by_hand.lands;
  lands.depends = {{0, false}};
  EXPECT_TRUE(by_hand.round({by_hand.offers, lands}).empty());
  lands.depends = {{0, true}};
  EXPECT_FALSE(by_hand.round({by_hand.offers, lands}).empty()) << "the peer reads it first";
}

// What a rank copies of its own for itself and for the peer has time for itself.
TEST(DirectRound, TheOwnPartOfACopyIsSpare) {
  const ByHand by_hand;
  LoweredStep both = copy(mine(Buffer::input, 0), mine(Buffer::output, 0));
  both.destinations.push_back(message(DirectForm::push, Buffer::output, 0, false));
  const DirectRound round = by_hand.round({both});
  ASSERT_EQ(round.actions().size(), 2U);
  EXPECT_EQ(round.early(), 0U);
  EXPECT_EQ(round.spare(), 1U);
  EXPECT_EQ(round.actions()[0].part, DirectRound::Part::peers);
  EXPECT_EQ(round.actions()[0].words_end, 1U);
  EXPECT_EQ(round.actions()[1].part, DirectRound::Part::own);
  EXPECT_EQ(round.actions()[1].words, round.actions()[1].words_end) << "nobody is told of it";
  LoweredStep waits = copy(mine(Buffer::output, 0), mine(Buffer::output, 1));
  waits.depends = {{0, false}};
  const DirectRound awaited = by_hand.round({both, waits});
  EXPECT_EQ(awaited.early(), 1U);
  EXPECT_EQ(awaited.actions()[0].part, DirectRound::Part::own);
  LoweredStep sum = both;
  sum.kind = StepKind::reduce;
  EXPECT_EQ(by_hand.round({sum}).actions().size(), 1U) << "is made once";
  LoweredStep before = copy(message(DirectForm::pull, Buffer::input, 0, false), both.sources[0]);
  both.depends = {{0, false}};
  const DirectRound passed_on = by_hand.round({before, both});
  EXPECT_EQ(passed_on.early(), 0U) << "of what was a peer's";
  EXPECT_EQ(passed_on.spare(), 2U);
}

// That something was read is told without asking whether its owner has failed; that something is
// there which may have been made of it is not.
TEST(DirectRound, VouchesForWhatMayHaveBeenRead) {
  const ByHand by_hand;
  const LoweredStep stores =
      copy(mine(Buffer::input, 1), message(DirectForm::push, Buffer::output, 1, false));
  const auto vouch = [](const DirectRound& round) {
    std::vector<bool> all;
    for (const DirectRound::Action& action : round.actions()) all.push_back(action.vouches);
    return all;
  };
  EXPECT_EQ(vouch(by_hand.round({by_hand.loads})), std::vector({false}));
  EXPECT_EQ(vouch(by_hand.round({stores, by_hand.loads})), std::vector({false, false}));
  EXPECT_EQ(vouch(by_hand.round({by_hand.loads, stores})), std::vector({false, true}));
}

// A broadcast's root copies for itself what its peers read only where that is another place.
TEST(DirectRound, TheRootDoesNotWaitForItsReaders) {
  ByHand by_hand;
  by_hand.collective = Collective::broadcast;
  LoweredStep same = copy(mine(Buffer::input, 0), mine(Buffer::output, 0));
  same.depends = {{0, false}};
  const DirectRound round = by_hand.round({by_hand.offers, same});
  ASSERT_EQ(round.actions().size(), 2U);
  EXPECT_EQ(round.spare(), 1U);
  EXPECT_EQ(round.actions()[1].step, 1U);
  EXPECT_TRUE(by_hand.round({by_hand.lands, same}).empty()) << "the peer stores first";
  LoweredStep shifted = same;
  shifted.destinations = {mine(Buffer::output, 1)};
  EXPECT_TRUE(by_hand.round({by_hand.offers, shifted}).empty()) << "in place, it is offered memory";
  LoweredStep back = same;
  back.sources = {mine(Buffer::output, 0)};
  back.destinations = {mine(Buffer::input, 0)};
  EXPECT_TRUE(by_hand.round({by_hand.offers, back}).empty());
  by_hand.collective = Collective::reduce_scatter;
  EXPECT_TRUE(by_hand.round({by_hand.offers, same}).empty()) << "in place, it lies elsewhere";
}

TEST(DirectRound, WhatNeedsAPeersDataIsNotEarly) {
  const ByHand by_hand;
  LoweredStep after = copy(mine(Buffer::output, 0), mine(Buffer::output, 1));
  LoweredStep alone = copy(mine(Buffer::input, 1), mine(Buffer::output, 1));
  const LoweredStep stores =
      copy(mine(Buffer::output, 1), message(DirectForm::push, Buffer::output, 1, false));
  const DirectRound spare = by_hand.round({alone, by_hand.loads});
  EXPECT_EQ(spare.early(), 0U);
  ASSERT_EQ(spare.spare(), 1U) << "nobody waits for it";
  EXPECT_EQ(spare.actions()[1].step, 0U);
  LoweredStep waits = stores;
  waits.depends = {{1, false}};
  const DirectRound early = by_hand.round({by_hand.loads, alone, waits});
  EXPECT_EQ(early.early(), 1U);
  EXPECT_EQ(early.actions()[0].step, 1U);
  EXPECT_EQ(early.spare(), 3U);
  after.depends = {{0, false}};
  EXPECT_EQ(by_hand.round({by_hand.loads, after}).early(), 0U);
  EXPECT_EQ(by_hand.round({by_hand.loads, after}).spare(), 2U);
}

// ---- Ranks of one thread ----

class DirectRounds : public ::testing::TestWithParam<Calls> {
 protected:
  // Laid out after a call that is like the one before it.
  static void lay_out(Rounds& rounds) {
    rounds.all_the_general_way();
    rounds.all_the_general_way();
  }
  template <typename Body>
  static void for_each_case(const Body& body) {
    for (int ranks = 2; ranks <= 5; ++ranks)
      for (const std::size_t count : kCounts)
        for (const bool in_place : {false, true}) {
          if (in_place && !can_run_in_place(GetParam().collective)) continue;
          // Two ranks do not cut it, if both can address all memory; others do.
          if (count >= kManyFrames && ranks > 2) continue;
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(count) + " elements" +
                       (in_place ? ", in place" : ""));
          body(ranks, count, in_place);
          if (HasFatalFailure()) return;
        }
  }
};

INSTANTIATE_TEST_SUITE_P(All, DirectRounds, ::testing::ValuesIn(kCalls), [](const auto& kind) {
  const Calls& calls = kind.param;
  return std::string(to_string(calls.collective)) + "_" + std::string(calls.algorithm) +
         (calls.pulls ? "_pulled" : "");
});

TEST_P(DirectRounds, WhoLooksTwiceFindsAllThere) {
  for_each_case([](int ranks, std::size_t count, bool in_place) {
    Rounds rounds(GetParam(), ranks, count, in_place);
    lay_out(rounds);
    for (int call = 0; call < 4; ++call)
      EXPECT_EQ(rounds.together([](Rank) { return 3; }), ranks) << "call " << call;
    rounds.all_the_general_way();
    EXPECT_EQ(rounds.together([](Rank) { return 3; }), ranks) << "words are numbered through";
  });
}

// Some before anybody is there, some when all are, some when others are through.
TEST_P(DirectRounds, TheGeneralWayTakesOverAnywhere) {
  for_each_case([](int ranks, std::size_t count, bool in_place) {
    Rounds rounds(GetParam(), ranks, count, in_place);
    lay_out(rounds);
    for (int call = 0; call < 30; ++call) {
      rounds.together([&](Rank rank) { return (call >> rank) % 3; });
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST_P(DirectRounds, OneAfterTheOther) {
  for_each_case([](int ranks, std::size_t count, bool in_place) {
    Rounds rounds(GetParam(), ranks, count, in_place);
    lay_out(rounds);
    for (Rank first = 0; first < ranks; ++first) rounds.again(first);
  });
}

// Every buffer of every rank is shared or not by chance, and may be another time.
TEST_P(DirectRounds, MemoryThatIsNoLongerShared) {
  std::uint32_t dice = 1;
  int unlikely = 0;  // in how many shows one is withheld
  const auto shares = [&] {
    dice = dice * 1664525 + 1013904223;
    return unlikely == 0 || (dice >> 16) % static_cast<unsigned>(unlikely) != 0;
  };
  for_each_case([&](int ranks, std::size_t count, bool in_place) {
    unlikely = 0;
    Rounds rounds(GetParam(), ranks, count, in_place, shares);
    lay_out(rounds);
    for (int call = 0; call < 40; ++call) {
      unlikely = call < 30 ? 7 : 0;
      rounds.together([](Rank) { return 3; });
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(rounds.together([](Rank) { return 3; }), ranks) << "as at first";
  });
}

// Whatever of it is one round, and for whichever rank.
TEST(DirectRound, EveryAlgorithm) {
  for (const collectives::Algorithm& algorithm : collectives::all_algorithms())
    for (int ranks = 2; ranks <= 5; ++ranks)
      for (const bool pulls : {false, true})
        for (const bool in_place : {false, true}) {
          const Collective collective = algorithm.collective;
          if (in_place && !can_run_in_place(collective)) continue;
          if (algorithm.grouped || !algorithm.shape(ranks, 0, 1).ok()) continue;
          if (collective == Collective::send_recv || collective == Collective::barrier) continue;
          SCOPED_TRACE(std::string(to_string(collective)) + " " + std::string(algorithm.name) +
                       " of " + std::to_string(ranks));
          Rounds rounds({collective, algorithm.name, true, pulls}, ranks, 23, in_place);
          rounds.all_the_general_way();
          rounds.all_the_general_way();
          for (int call = 0; call < 8; ++call)
            rounds.together([&](Rank rank) { return call < 2 ? 6 : (call >> rank) % 3; });
          if (HasFatalFailure()) return;
        }
}

TEST(DirectRound, IsOfCallsThatAreLikeTheLatestOne) {
  Rounds rounds(kCalls[0], 2, 50, true);
  EXPECT_FALSE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0))) << "none was made";
  rounds.all_the_general_way();
  EXPECT_FALSE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0))) << "one was made";
  rounds.all_the_general_way();
  expect_only_like_the_latest(rounds);
}

TEST(DirectRound, IsNotOfCallsThatAreCut) {
  for (const int ranks : {2, 3}) {
    Rounds rounds(kCalls[0], ranks, kManyFrames, true);
    rounds.all_the_general_way();
    rounds.all_the_general_way();
    rounds.count_a_call();
    EXPECT_EQ(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0)), ranks == 2);
  }
}

TEST(DirectRound, AnotherCallIsAMismatch) {
  Rounds rounds(kCalls[0], 2, 50, true);
  rounds.all_the_general_way();
  rounds.all_the_general_way();
  expect_that_another_call_is_a_mismatch(rounds);
}

// Calls between the same buffers.
TEST(DirectRound, MemoryIsLookedForOnceUntilSomeIsNotMappedAnyMore) {
  Rounds rounds({Collective::all_gather, "direct", true, true}, 2, 50, false, [] { return true; });
  rounds.all_the_general_way();
  rounds.all_the_general_way();
  rounds.count_a_call();
  std::vector<Call> calls = {rounds.next(0), rounds.next(1)};
  // How often rank 0 asks in the next call.
  const auto asked = [&](std::uint64_t generation) {
    for (Call& call : calls) {
      ++call.signature.sequence;
      call.sign();
    }
    rounds.imports(0) = {0, generation};
    for (const Rank rank : {0, 1})
      EXPECT_TRUE(rounds.executor(rank).post_again(calls[static_cast<std::size_t>(rank)],
                                                   rounds.plan(rank)));
    EXPECT_FALSE(rounds.find(0, 3)) << "nobody has taken its memory";
    for (const Rank rank : {1, 0}) {
      EXPECT_TRUE(rounds.find(rank, 3));
      EXPECT_TRUE(rounds.executor(rank).end_again(true));
    }
    return rounds.imports(0).asked;
  };
  EXPECT_EQ(asked(7), 1U);
  EXPECT_EQ(asked(7), 0U);
  EXPECT_EQ(asked(7), 0U);
  EXPECT_EQ(asked(8), 1U) << "it may have been unmapped";
  EXPECT_EQ(asked(8), 0U);
  EXPECT_EQ(asked(0), 1U) << "nobody can tell";
  EXPECT_EQ(asked(0), 1U);
}

// Of one who failed when it had come: its memory may be another's when it is read.
TEST(DirectRound, NobodyIsToldOfWhatWasReadOfOneWhoFailed) {
  for (const bool before : {true, false}) {
    Rounds rounds({Collective::all_gather, "direct", true, true}, 2, 50, false);
    rounds.all_the_general_way();
    rounds.all_the_general_way();
    rounds.count_a_call();
    Executor& failing = rounds.executor(1);
    const Status why(StatusCode::aborted, "no more", 1);
    ASSERT_TRUE(failing.post_again(rounds.next(1), rounds.plan(1)));
    if (before) failing.fail(why);
    ASSERT_TRUE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0)));
    EXPECT_FALSE(rounds.find(0, 3));
    if (!before) failing.fail(why);
    EXPECT_FALSE(rounds.executor(0).end_again(false));
    EXPECT_EQ(rounds.executor(0).status().code(), StatusCode::aborted);
    EXPECT_FALSE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0)));
  }
}

// A sum of what may be another's by now.
TEST(DirectRound, NoOtherIsToldEither) {
  Rounds rounds({Collective::all_reduce, "direct", true, false}, 3, 50, false);
  rounds.all_the_general_way();
  rounds.all_the_general_way();
  rounds.count_a_call();
  for (const Rank rank : {1, 2})
    ASSERT_TRUE(rounds.executor(rank).post_again(rounds.next(rank), rounds.plan(rank)));
  rounds.executor(1).fail(Status(StatusCode::aborted, "no more", 1));
  const std::uint64_t before = rounds.heard(2, 0, Signal::produced);
  ASSERT_GT(before, 0U);
  ASSERT_TRUE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0)));
  EXPECT_FALSE(rounds.find(0, 3));
  EXPECT_EQ(rounds.heard(2, 0, Signal::produced), before);
}

// Nor the general way, whether the call is cut or not.
TEST(DirectRound, NorIsAnybodyToldByTheGeneralWay) {
  for (const std::size_t count : {std::size_t{50}, kManyFrames}) {
    Rounds rounds({Collective::all_reduce, "direct", true, false}, 3, count, false);
    rounds.all_the_general_way();
    rounds.count_a_call();
    const std::uint64_t before = rounds.heard(2, 0, Signal::produced);
    for (const Rank rank : {1, 2}) {
      ASSERT_TRUE(rounds.executor(rank).start(rounds.next(rank), rounds.plan(rank)).ok());
      rounds.executor(rank).advance();
    }
    Executor& reader = rounds.executor(0);
    const Status begun = reader.start(rounds.next(0), rounds.plan(0));
    rounds.executor(1).fail(Status(StatusCode::aborted, "no more", 1));
    for (int round = 0; begun.ok() && round < 100 && !reader.done(); ++round) reader.advance();
    EXPECT_EQ(reader.status().code(), StatusCode::aborted);
    EXPECT_EQ(rounds.heard(2, 0, Signal::produced), before) << count;
  }
}

// ---- Communicators ----

// Ranks are ahead of each other by turns, and now and then another call comes between.
void loop(Communicator& comm) {
  constexpr std::size_t kCount = 6000;
  const auto size = static_cast<std::size_t>(comm.size());
  std::vector<std::int32_t> mine(kCount), sum(kCount), all(kCount * size), mixed(kCount * size);
  for (std::int32_t call = 1; call <= 200; ++call) {
    if (call % 7 == comm.rank()) std::this_thread::sleep_for(std::chrono::microseconds(80));
    for (int repeat = 0; repeat < 4; ++repeat) {
      const std::int32_t value = 10 * call + repeat;
      std::fill(mine.begin(), mine.end(), value + 1000 * comm.rank());
      ASSERT_TRUE(comm.all_gather(mine.data(), all.data(), kCount, DataType::int32).ok());
      for (std::size_t r = 0; r < size; ++r)
        for (const std::size_t i : {std::size_t{0}, kCount / 2, kCount - 1})
          ASSERT_EQ(all[r * kCount + i], value + 1000 * static_cast<std::int32_t>(r));
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      ASSERT_TRUE(comm.all_to_all(all.data(), mixed.data(), kCount, DataType::int32).ok());
      ASSERT_EQ(mixed[kCount * size - 1],
                all[kCount * (static_cast<std::size_t>(comm.rank()) + 1) - 1]);
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      ASSERT_TRUE(
          comm.all_reduce(mine.data(), sum.data(), kCount, DataType::int32, ReduceOp::max).ok());
      ASSERT_EQ(sum[kCount - 1], all[kCount * size - 1]);
    }
    if (call % 40 != 0) continue;
    ASSERT_TRUE(comm.broadcast(mine.data(), mine.data(), 3, DataType::int32, 0).ok());
  }
}

TEST(DirectRound, LoopsOfThreads) {
  for (const int ranks : {2, 3, 5}) {
    auto comms = Communicator::for_threads(ranks);
    ASSERT_TRUE(comms.ok());
    std::vector<std::thread> threads;
    for (Communicator& comm : *comms) threads.emplace_back([&comm] { loop(comm); });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace tutti::runtime
