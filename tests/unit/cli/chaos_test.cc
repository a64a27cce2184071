// chaos_test.cc: a simulated world follows from its seed alone, and some of every kind go right.
// That the worlds find mistakes is shown by tools/bug-hunt.
#include "cli/chaos_world.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "cli/chaos_faults.hpp"
#include "cli/chaos_habits.hpp"
#include "cli/chaos_oracle.hpp"
#include "cli/chaos_turns.hpp"

namespace tutti::cli {
namespace {

using Outcome = ChaosVerdict::Outcome;

ChaosLimits few_ranks() {
  ChaosLimits limits;
  limits.ranks_max = 9;
  return limits;
}

TEST(Chaos, ASeedReplays) {
  ChaosLimits limits = few_ranks();
  limits.faults = true;
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const ChaosVerdict once = run_chaos_world(seed, limits);
    std::size_t lines = 0;
    const ChaosVerdict again =
        run_chaos_world(seed, limits, {[&](const std::string&) { ++lines; }, true});
    EXPECT_EQ(once.event_hash, again.event_hash) << "seed " << seed;
    EXPECT_EQ(once.events, again.events) << "seed " << seed;
    EXPECT_GE(lines, again.events);
    hashes.insert(once.event_hash);
  }
  EXPECT_GT(hashes.size(), 25U) << "seeds give different worlds";
}

ChaosVerdict run_all(const ChaosLimits& limits, std::uint64_t seeds) {
  ChaosVerdict sum;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const ChaosVerdict verdict = run_chaos_world(seed, limits);
    EXPECT_EQ(verdict.outcome, Outcome::right) << "seed " << seed << ": " << verdict.trouble;
    sum.kills += verdict.kills;
    sum.leavers += verdict.leavers;
    sum.shrinks += verdict.shrinks;
    sum.failed_calls += verdict.failed_calls;
    sum.mismatches += verdict.mismatches;
  }
  return sum;
}

// One of 100,000, whose slow ranks take so many turns for a ring of many slices that it was once
// held for a hang. Should other things be drawn some day, it becomes a world like any other.
TEST(Chaos, SlowRanksGetTheirTime) {
  ChaosLimits limits;
  limits.faults = true;
  const ChaosVerdict verdict = run_chaos_world(88845, limits);
  EXPECT_EQ(verdict.outcome, Outcome::right) << verdict.trouble;
}

TEST(Chaos, RanksDieAndTheOthersGoOn) {
  ChaosLimits limits = few_ranks();
  limits.faults = true;
  const ChaosVerdict sum = run_all(limits, 80);
  EXPECT_GT(sum.kills, 0);
  EXPECT_GT(sum.leavers, 0);
  EXPECT_GT(sum.shrinks, 0);
  EXPECT_GT(sum.failed_calls, 0);
}

TEST(Chaos, DifferentCallsAreNoticed) {
  ChaosLimits limits = few_ranks();
  limits.mismatches = true;
  EXPECT_EQ(run_all(limits, 60).mismatches, 60);
  limits.strict = true;
  EXPECT_EQ(run_all(limits, 40).mismatches, 40);
}

TEST(Chaos, ManyRanks) {
  ChaosLimits limits;
  limits.ranks_min = limits.ranks_max = 200;
  limits.faults = true;
  run_all(limits, 3);
}

TEST(ChaosTurns, WhoLooksInVainSleepsUntilItIsWoken) {
  ChaosTurns turns(3);
  EXPECT_EQ(turns.awake(), 3U);
  turns.looked(1, false, 2);
  EXPECT_EQ(turns.awake(), 3U);
  turns.looked(1, true, 2);
  turns.looked(1, false, 2);
  EXPECT_EQ(turns.awake(), 3U) << "a move makes good for looks in vain";
  turns.looked(1, false, 2);
  ASSERT_EQ(turns.awake(), 2U);
  EXPECT_EQ((std::set<Rank>{turns.awake(0), turns.awake(1)}), (std::set<Rank>{0, 2}));
  turns.sleep(1);
  turns.wake(1);
  turns.wake(1);
  EXPECT_EQ(turns.awake(), 3U);
}

TEST(ChaosHabits, MostRanksOfAWorldAreAlikeAndNotAll) {
  Dice dice(7);
  std::set<Habit> usual;
  std::set<Habit> seen;
  for (int world = 0; world < 50; ++world) {
    const ChaosHabits habits(dice);
    std::map<Habit, int> count;
    for (int rank = 0; rank < 100; ++rank) ++count[habits.draw(dice)];
    for (const auto& [habit, ranks] : count) {
      seen.insert(habit);
      if (ranks > 60) usual.insert(habit);
    }
  }
  EXPECT_EQ(seen.size(), 4U);
  EXPECT_EQ(usual, (std::set<Habit>{Habit::wait, Habit::call, Habit::leave}));
}

TEST(ChaosFaults, ComeWhenTheyAreDue) {
  ChaosFaults faults;
  faults.add({7, 1, Fault::Kind::pause});
  faults.add({5, 2, Fault::Kind::death});
  EXPECT_EQ(faults.next_due(4), nullptr);
  const Fault* due = faults.next_due(6);
  ASSERT_NE(due, nullptr);
  EXPECT_EQ(due->rank, 2);
  EXPECT_EQ(faults.next_due(6), nullptr);
  ASSERT_NE(faults.next_due(9), nullptr);
  EXPECT_EQ(faults.next_due(9), nullptr);
}

TEST(ChaosOracle, BlocksOfOtherSizes) {
  ChaosCall call;
  call.collective = Collective::all_to_all;
  call.ranks = 2;
  call.type = DataType::int32;
  call.counts = {1, 2, 0, 3};  // 0 sends 1 to itself and 2 to rank 1, which sends 0 and 3
  EXPECT_EQ(input_count(call, 0), 3U);
  EXPECT_EQ(output_count(call, 0), 1U);
  EXPECT_EQ(output_count(call, 1), 5U);
  std::vector<std::byte> inputs[2];
  for (Rank r : {0, 1}) {
    inputs[r].resize(input_count(call, r) * 4);
    write_input(call, r, inputs[r].data());
  }
  std::vector<std::byte> wanted(inputs[0].begin() + 4, inputs[0].end());
  wanted.insert(wanted.end(), inputs[1].begin(), inputs[1].end());
  ChaosOracle oracle(call);
  const auto* expected = oracle.expected(1);
  ASSERT_NE(expected, nullptr);
  EXPECT_EQ(*expected, wanted);
}

// Also of many ranks every partial sum and product is a number that the type holds.
TEST(ChaosOracle, SumsAndProductsStaySmall) {
  for (const DataType type : kAllDataTypes)
    for (const int ranks : {2, 8, 32, 1024})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
        ChaosCall call{Collective::all_reduce, ranks, 0, 24, type, op, {}};
        std::vector<double> folded(call.count, op == ReduceOp::sum ? 0 : 1);
        std::vector<double> values(call.count);
        for (Rank r = 0; r < ranks; ++r) {
          contribute(call, r, 0, values);
          for (std::size_t i = 0; i < call.count; ++i)
            folded[i] = op == ReduceOp::sum ? folded[i] + values[i] : folded[i] * values[i];
        }
        for (const double value : folded) {
          std::byte element[8];
          write_all(type, element, 1, value);
          EXPECT_EQ(load(type, element, 0), value) << to_string(type) << " of " << ranks;
        }
      }
}

}  // namespace
}  // namespace tutti::cli
