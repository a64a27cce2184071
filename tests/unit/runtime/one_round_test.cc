// Small calls of one round: which programs are such, that calls made again by it give what others
// give, and that what is not as expected goes on the general way.
#include "runtime/one_round.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/flight/ticks.hpp"
#include "tutti/tutti.hpp"
#include "unit/runtime/rounds.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

constexpr std::size_t kElementBytes = sizeof(std::int64_t);

OneRound round_of(Collective collective, std::string_view name, int ranks, Rank rank,
                  std::size_t at_once_bytes = 1024) {
  const auto algorithm = collectives::find_algorithm(collective, name);
  const auto schedule = collectives::build(**algorithm, ranks, 0);
  const CallProgram program(
      std::make_shared<collectives::LoweredProgram>(collectives::lower(*schedule, rank)));
  ShortProgram steps;
  steps.lay_out(program, collectives::Geometry(13, program.lowered().shape.chunks, 1, 1),
                kElementBytes, at_once_bytes);
  OneRound round;
  round.lay_out(program, steps, kElementBytes);
  return round;
}

bool has_one_round(Collective collective, std::string_view name, int ranks, Rank rank,
                   std::size_t at_once_bytes = 1024) {
  return !round_of(collective, name, ranks, rank, at_once_bytes).empty();
}

// What it copies for itself; a sum needs the others'.
TEST(OneRound, DoesWhatNeedsNobodyFirst) {
  for (int ranks = 2; ranks <= 6; ++ranks)
    for (Rank rank = 0; rank < ranks; ++rank)
      for (const Collective collective : {Collective::all_gather, Collective::all_to_all}) {
        const OneRound round = round_of(collective, "direct", ranks, rank);
        ASSERT_EQ(round.early(), 1U);
        ASSERT_EQ(round.actions().size(), static_cast<std::size_t>(ranks));
        for (std::size_t i = 0; i < round.actions().size(); ++i)
          EXPECT_EQ(round.place(round.actions()[i].sources).peer == OneRound::kOwn, i == 0);
        EXPECT_EQ(round_of(Collective::all_reduce, "one_shot", ranks, rank).early(), 0U);
        EXPECT_EQ(round_of(Collective::reduce_scatter, "direct", ranks, rank).early(), 0U);
      }
}

TEST(OneRound, IsWhatSendsNothingThatItReceived) {
  for (int ranks = 2; ranks <= 6; ++ranks)
    for (Rank rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(has_one_round(Collective::all_reduce, "one_shot", ranks, rank));
      EXPECT_TRUE(has_one_round(Collective::all_gather, "direct", ranks, rank));
      EXPECT_TRUE(has_one_round(Collective::reduce_scatter, "direct", ranks, rank));
      EXPECT_TRUE(has_one_round(Collective::all_to_all, "direct", ranks, rank));
      EXPECT_TRUE(has_one_round(Collective::broadcast, "direct", ranks, rank));
      EXPECT_FALSE(has_one_round(Collective::all_reduce, "direct", ranks, rank));
      EXPECT_FALSE(ranks == 4 && has_one_round(Collective::all_reduce, "doubling", ranks, rank));
      EXPECT_EQ(has_one_round(Collective::broadcast, "ring", ranks, rank),
                rank == 0 || rank == ranks - 1);
    }
}

TEST(OneRound, IsNotWhatIsTooLongToBeSentAtOnce) {
  EXPECT_TRUE(has_one_round(Collective::all_gather, "direct", 3, 1, 13 * kElementBytes));
  EXPECT_FALSE(has_one_round(Collective::all_gather, "direct", 3, 1, 13 * kElementBytes - 1));
}

// ---- Ranks of one thread ----

constexpr Calls kCalls[] = {
    {Collective::all_reduce, "one_shot"},   {Collective::all_gather, "direct"},
    {Collective::reduce_scatter, "direct"}, {Collective::all_to_all, "direct"},
    {Collective::broadcast, "direct"},
};

TEST(OneRound, GivesWhatTheGeneralWayGives) {
  for (const Calls& calls : kCalls)
    for (int ranks = 2; ranks <= 5; ++ranks)
      for (const std::size_t count : {1U, 2U, 13U, 128U})
        for (const bool in_place : {false, true}) {
          if (in_place && !can_run_in_place(calls.collective)) continue;
          SCOPED_TRACE(std::string(to_string(calls.collective)) + " of " + std::to_string(ranks));
          Rounds rounds(calls, ranks, count, in_place);
          rounds.all_the_general_way();
          for (Rank first = 0; first < ranks; ++first) {
            EXPECT_GE(rounds.again(first), 1) << "who comes last finds all there";
            if (first % 2 == 1) rounds.all_the_general_way();
          }
        }
}

TEST(OneRound, IsOfCallsThatAreLikeTheLatestOne) {
  Rounds rounds({Collective::all_reduce, "one_shot"}, 2, 5, true);
  EXPECT_FALSE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0))) << "none was made";
  rounds.all_the_general_way();
  expect_only_like_the_latest(rounds);
}

// A root that is ahead finds its queue full at last: what it could not send goes when there is
// room.
// Few elements are written for each peer, many once for both.
class RoomForRound : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Elements, RoomForRound, ::testing::Values(4, 100));

TEST_P(RoomForRound, IsWaitedFor) {
  Rounds rounds({Collective::broadcast, "direct"}, 3, GetParam(), true);
  rounds.all_the_general_way();
  Executor& root = rounds.executor(0);
  std::vector<std::int64_t> data(GetParam());
  int ahead = 0;
  bool complete = true;
  for (; complete && ahead < 100'000; ++ahead) {
    rounds.count_a_call();
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = contribution(0, i);
    Call call = rounds.next(0);
    ASSERT_TRUE(root.post_again(call, rounds.plan(0)));
    complete = root.end_again(rounds.find(0, 0));
  }
  ASSERT_FALSE(complete) << "queues are bounded";
  EXPECT_FALSE(root.done());
  EXPECT_EQ(root.awaited().what, "rank 1 to take data");
  rounds.catch_up(1, ahead);
  rounds.catch_up(2, ahead);
  EXPECT_TRUE(root.done());
}

TEST(OneRound, AnotherCallIsAMismatch) {
  Rounds rounds({Collective::all_reduce, "one_shot"}, 2, 5, true);
  rounds.all_the_general_way();
  expect_that_another_call_is_a_mismatch(rounds);
}

TEST(OneRound, AFailureIsHeardOf) {
  Rounds rounds({Collective::broadcast, "direct"}, 2, 5, true);
  rounds.all_the_general_way();
  rounds.executor(1).fail(Status(StatusCode::aborted, "no more", 1));
  rounds.count_a_call();
  ASSERT_TRUE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0)));
  EXPECT_FALSE(rounds.executor(0).end_again(rounds.find(0, 0)));
  EXPECT_EQ(rounds.executor(0).status().code(), StatusCode::aborted);
  EXPECT_FALSE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0)));
}

// So that a call made again reads the clock once, before it looks: whoever missed something tells
// when, and who found all at once, or does much afterwards, does not.
TEST(OneRound, TellsWhenItLastMissedSomething) {
  Rounds rounds({Collective::broadcast, "direct"}, 2, 5, true);
  rounds.all_the_general_way();
  rounds.count_a_call();
  const std::uint64_t begun = flight::ticks();
  ASSERT_TRUE(rounds.executor(1).post_again(rounds.next(1), rounds.plan(1)));
  std::uint64_t missed_at = 1;
  EXPECT_FALSE(rounds.executor(1).find_again(3, missed_at));
  EXPECT_GE(missed_at, begun);
  EXPECT_LE(missed_at, flight::ticks());
  ASSERT_TRUE(rounds.executor(0).post_again(rounds.next(0), rounds.plan(0)));
  EXPECT_TRUE(rounds.executor(0).end_again(rounds.find(0, 0)));
  missed_at = 1;
  EXPECT_TRUE(rounds.executor(1).find_again(3, missed_at));
  EXPECT_EQ(missed_at, 1);
  EXPECT_TRUE(rounds.executor(1).end_again(true));
}

// ---- Communicators ----

// Ranks are ahead of each other by turns, and now and then another call comes between.
void loop(Communicator& comm) {
  const auto size = static_cast<std::int64_t>(comm.size());
  for (std::int64_t call = 1; call <= 300; ++call) {
    if (call % 7 == comm.rank()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    // Of two sizes: for each peer a frame of its own, and one for all of them.
    const std::size_t count = call % 60 < 30 ? 3 : 90;
    std::vector<std::int64_t> mine(count, call + comm.rank());
    std::vector<std::int64_t> sum(count);
    ASSERT_TRUE(
        comm.all_reduce(mine.data(), sum.data(), count, DataType::int64, ReduceOp::sum).ok());
    for (const std::int64_t each : sum) ASSERT_EQ(each, size * call + size * (size - 1) / 2);
    std::vector<std::int64_t> all(static_cast<std::size_t>(size));
    for (int repeat = 0; repeat < 3; ++repeat) {
      ASSERT_TRUE(comm.all_gather(mine.data(), all.data(), 1, DataType::int64).ok());
      for (std::int64_t r = 0; r < size; ++r) ASSERT_EQ(all[static_cast<std::size_t>(r)], call + r);
    }
    if (call % 40 == 0) {  // from memory to memory, with words that are counted from the beginning
      std::vector<std::int64_t> large(40'000, call + comm.rank());
      ASSERT_TRUE(comm.all_reduce(std::span(large), ReduceOp::max).ok());
      ASSERT_EQ(large[39'999], call + size - 1);
    }
    if (call % 50 == 0) {
      auto work = comm.all_reduce_async(mine.data(), sum.data(), 2, DataType::int64, ReduceOp::max);
      ASSERT_TRUE(work.ok() && work->wait().ok());
      ASSERT_EQ(sum[0], call + size - 1);
    }
  }
}

TEST(OneRound, LoopsOfThreads) {
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
