// Plans that are made in one way in calls of even numbers and in another in odd ones: by turns each
// rank of a pair leads, gives, or comes late, and what is laid out for the one way is there again
// when it is that one's turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.hpp"
#include "tutti/tutti.hpp"
#include "unit/runtime/processes.hpp"
#include "unit/runtime/rounds.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

constexpr std::size_t kFrameBytes = 8192;

Calls in_turn() {
  Calls calls{Collective::all_reduce, "leaders_in_turn", false, false, kFrameBytes};
  calls.group = 2;
  return calls;
}

int always(Rank) { return 3; }

// Ranks come in their order. In odd calls the first of each pair has given its data when the
// second one comes, who leads; in even ones it is the other way around, and the leader waits.
TEST(Twins, WhoComesSecondLeadsAtOnce) {
  for (const int ranks : {4, 6, 8})
    for (const std::size_t count : {1UL, 2UL, 13UL, 127UL, 512UL})
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(count));
        Rounds rounds(in_turn(), ranks, count, in_place);
        rounds.all_the_general_way();  // 1
        rounds.all_the_general_way();  // 2
        for (int call = 3; call < 20; ++call)
          EXPECT_EQ(rounds.together(always), call % 2 == 1 ? ranks : ranks / 2) << "call " << call;
      }
}

// Neither what is too long to be sent at once nor what is nothing has a round.
TEST(Twins, WhatHasNoRoundGoesTheGeneralWay) {
  for (const std::size_t count : {0UL, 513UL, 1000UL, 2500UL}) {
    Rounds rounds(in_turn(), 4, count, false);
    for (int call = 1; call < 8; ++call) EXPECT_EQ(rounds.together(always), 0) << count;
  }
}

// Whoever is late, or goes the general way meanwhile, all get what is right.
TEST(Twins, AnyoneMayBeLate) {
  std::mt19937 dice(7);
  for (const int ranks : {4, 8})
    for (const std::size_t count : {3UL, 100UL, 512UL, 700UL}) {
      Rounds rounds(in_turn(), ranks, count, dice() % 2 == 0);
      for (int call = 0; call < 200; ++call) {
        const auto general = static_cast<Rank>(dice() % 12);
        rounds.together([&](Rank) { return static_cast<int>(dice() % 3); }, general);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
}

// A leader that has no room for what it tells has not touched its own data, which its sum may lie
// on. What all get alike has room in one place, or else in each queue.
TEST(Twins, RoomIsWaitedFor) {
  struct Case {
    std::size_t count;
    int refusals;
    bool waits;
  };
  static int to_refuse;
  for (const Case& at : {Case{4, 1, true}, Case{100, 1, false}, Case{100, 2, true}})
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(std::to_string(at.count) + ", refused " + std::to_string(at.refusals));
      Calls calls = in_turn();
      calls.refuses = [] { return to_refuse > 0 && to_refuse-- > 0; };
      to_refuse = 0;
      Rounds rounds(calls, 4, at.count, in_place, [] { return true; });
      rounds.all_the_general_way();
      rounds.all_the_general_way();
      for (int call = 3; call < 30; ++call) {
        const int found = rounds.together([&](Rank rank) {
          to_refuse = rank == call % 4 ? at.refusals : 0;
          return 3;
        });
        EXPECT_EQ(to_refuse, 0) << "the test's premise";
        // In calls of even numbers leaders wait for their partners, and not all find all there.
        EXPECT_EQ(found < 4, at.waits || call % 2 == 0) << "call " << call;
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
}

// A call that was like it but for its turn stays laid out, and no other one does.
TEST(Twins, OnlyTheLatestTwoStay) {
  Rounds rounds(in_turn(), 4, 5, false);
  Executor& executor = rounds.executor(1);
  rounds.all_the_general_way();
  rounds.count_a_call();  // 2, in which it gives
  EXPECT_FALSE(executor.post_again(rounds.next(1), rounds.plan(1))) << "it was never made";
  rounds.all_the_general_way();  // 3
  rounds.all_the_general_way();  // 4
  rounds.all_the_general_way();  // 5
  rounds.count_a_call();         // 6
  Call call = rounds.next(1);
  call.signature.count = 4;
  EXPECT_FALSE(executor.post_again(call, rounds.plan(1)));
  call = rounds.next(1);
  call.signature.type = DataType::uint64;
  EXPECT_FALSE(executor.post_again(call, rounds.plan(1)));
  collectives::Plan cut = rounds.plan(1);
  cut.settings.slice_bytes = 1024;
  EXPECT_FALSE(executor.post_again(rounds.next(1), cut));
  EXPECT_TRUE(executor.post_again(rounds.next(1), rounds.plan(1)));
}

// A leader that finds another call than its own where its partner's data should be.
TEST(Twins, AnotherCallIsAMismatch) {
  Rounds rounds(in_turn(), 4, 5, false);
  rounds.all_the_general_way();
  rounds.all_the_general_way();
  rounds.count_a_call();  // 3: the second of each pair leads
  Call other = rounds.next(0);
  other.signature.op = ReduceOp::max;
  other.sign();
  ASSERT_TRUE(rounds.executor(0).post_again(other, rounds.plan(0)));
  Executor& leader = rounds.executor(1);
  const Call call = rounds.next(1);
  ASSERT_FALSE(leader.post_again(call, rounds.plan(1)));
  ASSERT_TRUE(leader.start(call, rounds.plan(1)).ok());
  for (int turn = 0; turn < 5 && !leader.done(); ++turn) leader.advance();
  EXPECT_EQ(leader.status().code(), StatusCode::mismatch);
}

// Whoever had nothing to do with a rank in the turn at hand hears of its failure all the same.
TEST(Twins, AFailureReachesWhoWillBeAPeer) {
  Rounds rounds(in_turn(), 4, 5, false);
  rounds.all_the_general_way();
  rounds.executor(1).fail(Status(StatusCode::aborted, "no more", 1));
  EXPECT_FALSE(rounds.executor(1).start(rounds.next(1), rounds.plan(1)).ok());
  for (const Rank peer : {0, 2, 3}) EXPECT_NE(rounds.heard(peer, 1, Signal::failed), 0U) << peer;
}

// ---- Communicators ----

// Calls of other kinds come between, so that now the one, now the other comes twice.
void loop(Communicator& comm) {
  const auto size = static_cast<std::int64_t>(comm.size());
  for (std::int64_t call = 1; call <= 300; ++call) {
    if (call % 11 == comm.rank()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    const std::size_t count = call % 60 < 30 ? 3 : call % 60 < 50 ? 300 : 3000;
    std::vector<std::int64_t> mine(count, call + comm.rank());
    std::vector<std::int64_t> sum(count);
    ASSERT_TRUE(
        comm.all_reduce(mine.data(), sum.data(), count, DataType::int64, ReduceOp::sum).ok());
    for (const std::int64_t each : sum) ASSERT_EQ(each, size * call + size * (size - 1) / 2);
    if (call % 5 == 0) {
      ASSERT_TRUE(comm.barrier().ok());
    }
    if (call % 17 == 0) {
      auto work = comm.all_reduce_async(mine.data(), sum.data(), 2, DataType::int64, ReduceOp::max);
      ASSERT_TRUE(work.ok() && work->wait().ok());
      ASSERT_EQ(sum[0], call + size - 1);
    }
  }
}

// Each pair on a core.
TEST(Twins, LoopsOfProcesses) {
  const std::vector<base::Core> cores = base::allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "needs two cores";
  const auto bind = [&](Rank rank) {
    if (!base::bind_to(std::span(cores[idx(rank / 2)]).first(1)).ok()) std::abort();
  };
  for (const char* algorithm :
       {"leaders_in_turn", "leaders_direct_in_turn", "leaders_in_order_in_turn"}) {
    CommunicatorOptions options;
    options.algorithm = algorithm;
    EXPECT_TRUE(on_processes(
        4, options,
        [](Communicator& comm) {
          loop(comm);
          return !::testing::Test::HasFailure();
        },
        bind))
        << algorithm;
  }
}

}  // namespace
}  // namespace tutti::runtime
