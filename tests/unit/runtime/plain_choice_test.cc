// Which plan calls have where buffers are plain: what ranks agree on, and that they make such
// calls.
#include "runtime/plain_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "unit/runtime/rounds.hpp"

namespace tutti::runtime {
namespace {

using namespace testing;

using Words = std::vector<std::atomic<std::uint64_t>>;

constexpr std::size_t kBytes = 65536;

TEST(PlainChoice, FollowsWhatTheCallBeforeTheLatestMet) {
  Words words(PlainChoice::kWords);
  PlainChoice leader(words, true);
  PlainChoice other(words, false);
  const bool met[] = {true, true, false, false, true, true, true};
  const bool plain[] = {false, false, true, true, false, false, true};
  for (std::size_t call = 0; call < std::size(met); ++call) {
    EXPECT_EQ(leader.begin(kBytes), plain[call]) << call;
    EXPECT_EQ(other.begin(kBytes), plain[call]) << call;
    leader.met(met[call], met[call]);
    other.met(!met[call], !met[call]);  // which nobody asks for
  }
}

// In whatever order they come: none is more than one call ahead of another.
TEST(PlainChoice, AllHearTheSameWhoeverIsAhead) {
  Words words(PlainChoice::kWords);
  std::vector<PlainChoice> ranks;
  for (const bool leads : {true, false, false}) ranks.emplace_back(words, leads);
  std::vector<std::vector<bool>> heard(ranks.size());
  std::minstd_rand random(3);
  for (int turn = 0; turn < 3000; ++turn) {
    const std::size_t rank = random() % ranks.size();
    const std::size_t calls = heard[rank].size();
    if (std::any_of(heard.begin(), heard.end(), [&](const auto& h) { return h.size() < calls; }))
      continue;
    heard[rank].push_back(ranks[rank].begin(kBytes));
    ranks[rank].met(calls % 5 < 3, calls % 5 < 3);
  }
  const std::size_t calls = std::min({heard[0].size(), heard[1].size(), heard[2].size()});
  ASSERT_GT(calls, 300U);
  for (std::size_t call = 0; call < calls; ++call)
    ASSERT_TRUE(heard[0][call] == heard[1][call] && heard[0][call] == heard[2][call]) << call;
  EXPECT_GT(std::count(heard[0].begin(), heard[0].end(), true), 100);
  EXPECT_GT(std::count(heard[0].begin(), heard[0].end(), false), 100);
}

TEST(PlainChoice, SizesAreApart) {
  Words words(PlainChoice::kWords);
  PlainChoice leader(words, true);
  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(leader.begin(kBytes), call > 1);
    leader.met(true, true);
    EXPECT_FALSE(leader.begin(2 * kBytes));
    leader.met(false, false);
    EXPECT_FALSE(leader.begin(std::size_t{1} << 60)) << "larger than any buffer";
    leader.met(false, false);
  }
}

// A call by that plan only says what one's own memory is.
TEST(PlainChoice, OthersAreAskedAgainFromTimeToTime) {
  Words words(PlainChoice::kWords);
  PlainChoice leader(words, true);
  const auto calls_by_plain_plan = [&](bool own, bool others) {
    int plain = 0;
    for (int call = 0; call < 1000; ++call) {
      if (leader.begin(kBytes)) {
        ++plain;
        leader.met_by_plain_plan(own);
      } else {
        leader.met(own, own || others);
      }
    }
    return plain;
  };
  EXPECT_EQ(calls_by_plain_plan(true, false), 998) << "the first two cannot know";
  EXPECT_EQ(calls_by_plain_plan(false, false), 2) << "nor can they when it changes";
  const int plain = calls_by_plain_plan(false, true);
  EXPECT_GT(plain, 900);
  EXPECT_LT(plain, 999 - 1000 / (PlainChoice::kTrusted + 3));
}

TEST(PlainChoice, CanBeForetold) {
  Words words(PlainChoice::kWords);
  PlainChoice leader(words, true);
  int plain = 0;
  for (int call = 0; call < 20; ++call) {
    const bool foretold = leader.foretells(kBytes);
    plain += foretold ? 1 : 0;
    EXPECT_EQ(leader.begin(kBytes), foretold) << call;
    foretold ? leader.met_by_plain_plan(call % 4 < 2) : leader.met(call % 4 < 2, call % 4 < 2);
  }
  EXPECT_GT(plain, 5);
  EXPECT_LT(plain, 15);
}

TEST(PlainChoice, WithoutWordsNothingIsAgreed) {
  PlainChoice leader({}, true);
  for (int call = 0; call < 4; ++call) {
    EXPECT_FALSE(leader.begin(kBytes));
    leader.met(true, true);
  }
}

// Whatever becomes of the buffers under way, the sums are right, and the plan follows.
TEST(PlainChoice, CallsOfPlainMemoryTakeTheOtherPlan) {
  for (const int ranks : {3, 4, 5, 8}) {
    for (const std::size_t count : {64UL, 10007UL}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(count));
      bool shared = false;
      Calls calls{Collective::all_reduce, "ring", true};
      calls.plain = "direct";
      Rounds rounds(calls, ranks, count, false, [&] { return shared; });
      const auto expect_plain = [&](bool plain) {
        for (Rank r = 0; r < ranks; ++r)
          EXPECT_EQ(rounds.executor(r).uses_plain_plan(), plain) << "rank " << r;
      };
      for (int call = 0; call < 8; ++call) {
        shared = call >= 4;
        ASSERT_NO_FATAL_FAILURE(rounds.all_the_general_way());
        expect_plain(call >= 2 && call < 6);
      }
    }
  }
}

// Between buffers that all can address they are made again without being set up, as if there were
// no other plan, until the buffers are plain.
TEST(PlainChoice, SharedMemoryIsMadeAgain) {
  for (const int ranks : {4, 8}) {
    bool shared = true;
    Calls calls{Collective::all_reduce, "direct", true};
    calls.plain = "leaders_one_shot";
    calls.group = ranks / 2;
    Rounds rounds(calls, ranks, 64, false, [&] { return shared; });
    for (int call = 0; call < 3; ++call) ASSERT_NO_FATAL_FAILURE(rounds.all_the_general_way());
    for (int call = 0; call < 3; ++call)
      EXPECT_EQ(rounds.together([](Rank) { return 3; }), ranks) << "found at once, call " << call;
    for (int call = 0; call < 3; ++call)
      ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 2; }, call));
    shared = false;
    for (int call = 0; call < 4; ++call)
      ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 2; }));
    for (Rank r = 0; r < ranks; ++r) EXPECT_TRUE(rounds.executor(r).uses_plain_plan());
    shared = true;
    for (int call = 0; call < 6; ++call)
      ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 2; }));
    for (Rank r = 0; r < ranks; ++r) EXPECT_FALSE(rounds.executor(r).uses_plain_plan());
  }
}

// Where one rank's memory is plain, those that do not talk to it meet none, and could make the call
// again as it was when the other plan has been agreed on.
TEST(PlainChoice, OneRankOfPlainMemoryIsEnough) {
  Calls calls{Collective::all_reduce, "binomial", true};
  calls.plain = "direct";
  calls.never_shares = 2;
  Rounds rounds(calls, 5, 64, false, [] { return true; });
  for (int call = 0; call < 8; ++call) {
    ASSERT_NO_FATAL_FAILURE(rounds.together([](Rank) { return 3; }));
    for (Rank r = 0; r < 5; ++r)
      EXPECT_EQ(rounds.executor(r).uses_plain_plan(), call >= 2) << r << ", call " << call;
  }
}

// Who waits long for a rank asks whether it makes the same call.
TEST(PlainChoice, InquiriesAreOfThePlanThatIsUsed) {
  Calls calls{Collective::all_reduce, "direct", true};
  calls.plain = "ring";
  Rounds rounds(calls, 3, 5003, false, [] { return false; });
  for (int call = 0; call < 4; ++call) {
    ASSERT_NO_FATAL_FAILURE(rounds.all_the_general_way());
    EXPECT_EQ(rounds.executor(0).uses_plain_plan(), call >= 2);
    rounds.executor(0).answer_inquiry(1, rounds.executor(1).record());
    EXPECT_TRUE(rounds.executor(0).status().ok()) << rounds.executor(0).status().to_string();
  }
}

// The record of a call says by which of its plans it is made.
TEST(PlainChoice, RanksThatDisagreeAreTold) {
  Calls calls{Collective::all_reduce, "direct", true};
  calls.plain = "direct";
  Rounds rounds(calls, 3, 5003, false, [] { return false; });
  for (int call = 0; call < 3; ++call) ASSERT_NO_FATAL_FAILURE(rounds.all_the_general_way());
  rounds.forget_plain_plan(1);
  rounds.one_that_fails();
  for (Rank r = 0; r < 3; ++r)
    EXPECT_EQ(rounds.executor(r).status().code(), StatusCode::mismatch)
        << rounds.executor(r).status().to_string();
}

}  // namespace
}  // namespace tutti::runtime
