// By which of their plans calls are made: what ranks agree on by the memory that calls have met and
// by the time that they took, and that they make such calls.
#include "runtime/plan_choice.hpp"

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
constexpr auto kAllReduce = Collective::all_reduce;
const PlanChoice::Plans kTwo = {1, 1, 7};  // one for either kind of memory

bool begin(PlanChoice& choice, std::size_t bytes = kBytes) {
  return choice.begin(kAllReduce, bytes, kTwo, 0).plain;
}

TEST(PlanChoice, FollowsWhatTheCallBeforeTheLatestMet) {
  Words words(PlanChoice::kWords);
  PlanChoice leader(words, true);
  PlanChoice other(words, false);
  const bool met[] = {true, true, false, false, true, true, true};
  const bool plain[] = {false, false, true, true, false, false, true};
  for (std::size_t call = 0; call < std::size(met); ++call) {
    EXPECT_EQ(begin(leader), plain[call]) << call;
    EXPECT_EQ(begin(other), plain[call]) << call;
    leader.met(met[call], met[call]);
    other.met(!met[call], !met[call]);  // which nobody asks for
  }
}

// In whatever order they come: none is more than one call ahead of another.
TEST(PlanChoice, AllHearTheSameWhoeverIsAhead) {
  Words words(PlanChoice::kWords);
  std::vector<PlanChoice> ranks;
  for (const bool leads : {true, false, false}) ranks.emplace_back(words, leads);
  std::vector<std::vector<bool>> heard(ranks.size());
  std::minstd_rand random(3);
  for (int turn = 0; turn < 3000; ++turn) {
    const std::size_t rank = random() % ranks.size();
    const std::size_t calls = heard[rank].size();
    if (std::any_of(heard.begin(), heard.end(), [&](const auto& h) { return h.size() < calls; }))
      continue;
    heard[rank].push_back(begin(ranks[rank]));
    ranks[rank].met(calls % 5 < 3, calls % 5 < 3);
  }
  const std::size_t calls = std::min({heard[0].size(), heard[1].size(), heard[2].size()});
  ASSERT_GT(calls, 300U);
  for (std::size_t call = 0; call < calls; ++call)
    ASSERT_TRUE(heard[0][call] == heard[1][call] && heard[0][call] == heard[2][call]) << call;
  EXPECT_GT(std::count(heard[0].begin(), heard[0].end(), true), 100);
  EXPECT_GT(std::count(heard[0].begin(), heard[0].end(), false), 100);
}

TEST(PlanChoice, SizesAreApart) {
  Words words(PlanChoice::kWords);
  PlanChoice leader(words, true);
  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(begin(leader), call > 1);
    leader.met(true, true);
    EXPECT_FALSE(begin(leader, 2 * kBytes));
    leader.met(false, false);
    EXPECT_FALSE(begin(leader, std::size_t{1} << 60)) << "larger than any buffer";
    leader.met(false, false);
  }
}

TEST(PlanChoice, CollectivesAreApart) {
  Words words(PlanChoice::kWords);
  PlanChoice leader(words, true);
  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(begin(leader), call > 1);
    leader.met(true, true);
    for (const Collective other :
         {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
      EXPECT_FALSE(leader.begin(other, kBytes, kTwo, 0).plain);
      leader.met(false, false);
    }
  }
}

// Else their line would travel from cache to cache in every call.
TEST(PlanChoice, WordsAreWrittenWhenTheChoiceChanges) {
  Words words(PlanChoice::kWords);
  PlanChoice leader(words, true);
  int written = 0;
  std::uint64_t before = 0;
  for (int call = 0; call < 100; ++call) {
    begin(leader);
    leader.met(call >= 50, call >= 50);
    const auto said =
        std::find_if(words.begin(), words.end(), [](const auto& w) { return w != 0; });
    if (said == words.end() || *said == before) continue;
    before = *said;
    ++written;
  }
  EXPECT_EQ(written, 1);
}

// A call by that plan only says what one's own memory is.
TEST(PlanChoice, OthersAreAskedAgainFromTimeToTime) {
  Words words(PlanChoice::kWords);
  PlanChoice leader(words, true);
  const auto calls_by_plain_plan = [&](bool own, bool others) {
    int plain = 0;
    for (int call = 0; call < 1000; ++call) {
      if (begin(leader)) {
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
  EXPECT_LT(plain, 999 - 1000 / (PlanChoice::kTrusted + 3));
}

TEST(PlanChoice, CanBeForetold) {
  Words words(PlanChoice::kWords);
  PlanChoice leader(words, true);
  int plain = 0;
  for (int call = 0; call < 20; ++call) {
    const bool foretold = leader.foretell(kAllReduce, kBytes, kTwo).plain;
    plain += foretold ? 1 : 0;
    EXPECT_EQ(begin(leader), foretold) << call;
    foretold ? leader.met_by_plain_plan(call % 4 < 2) : leader.met(call % 4 < 2, call % 4 < 2);
  }
  EXPECT_GT(plain, 5);
  EXPECT_LT(plain, 15);
}

TEST(PlanChoice, WithoutWordsNothingIsAgreed) {
  PlanChoice leader({}, true);
  for (int call = 0; call < 4; ++call) {
    EXPECT_FALSE(begin(leader));
    leader.met(true, true);
  }
}

// What calls take by each of so many plans, by its number, for either kind of memory.
class TimedCalls {
 public:
  TimedCalls(std::size_t usual, std::size_t plain, std::size_t bytes = std::size_t{1} << 20)
      : plans_{usual, plain, 11}, bytes_(bytes) {
    for (const bool leads : {true, false}) ranks_.emplace_back(words_, leads);
  }

  // How many of so many calls were made by each plan, all ranks alike.
  std::vector<int> make(int calls, bool plain, const std::vector<std::uint64_t>& took) {
    std::vector<int> made(took.size());
    for (int call = 0; call < calls; ++call) {
      const auto choice = ranks_[0].begin(kAllReduce, bytes_, plans_, now_);
      EXPECT_EQ(ranks_[1].foretell(kAllReduce, bytes_, plans_), choice);
      EXPECT_EQ(ranks_[1].begin(kAllReduce, bytes_, plans_, 0), choice);
      for (PlanChoice& rank : ranks_)
        choice.plain ? rank.met_by_plain_plan(plain) : rank.met(plain, plain);
      EXPECT_LT(choice.number, choice.plain ? plans_.plain : plans_.usual);
      // Ranks that lead in turn have every second call take less.
      const std::uint64_t time = took[choice.number % took.size()];
      now_ += call % 2 == 0 ? time / 2 : time + time / 2;
      if (choice.plain == plain) ++made[choice.number];
    }
    return made;
  }

 private:
  Words words_ = Words(PlanChoice::kWords);
  PlanChoice::Plans plans_;
  std::size_t bytes_;
  std::vector<PlanChoice> ranks_;
  std::uint64_t now_ = 1;
};

TEST(PlanChoice, TheQuickestPlanIsFoundAndKept) {
  for (const bool plain : {false, true}) {
    for (std::size_t quickest = 0; quickest < 4; ++quickest) {
      SCOPED_TRACE(quickest);
      TimedCalls calls(plain ? 1 : 4, plain ? 4 : 1);
      std::vector<std::uint64_t> took(4, 200'000'000);
      took[quickest] = 100'000'000;
      calls.make(200, plain, took);
      EXPECT_GT(calls.make(4000, plain, took)[quickest], 3700);
      std::swap(took[quickest], took[(quickest + 1) % 4]);
      calls.make(1000, plain, took);
      EXPECT_GT(calls.make(4000, plain, took)[(quickest + 1) % 4], 3700) << "times have changed";
    }
  }
}

TEST(PlanChoice, WhatIsHardlyQuickerIsNotChosen) {
  TimedCalls calls(3, 1);
  const std::vector<std::uint64_t> took = {100'000'000, 95'000'000, 94'000'000};
  calls.make(200, false, took);
  EXPECT_GT(calls.make(4000, false, took)[0], 3700);
}

// A program makes few of them, and what they find in the caches is of no account; those who lead in
// turn do so in short ones.
TEST(PlanChoice, LongCallsAreTriedFewTimes) {
  const std::vector<std::uint64_t> took = {100'000'000, 200'000'000};
  TimedCalls calls(1, 2, std::size_t{64} << 20);
  EXPECT_GE(calls.make(50, true, took)[0], 38);
}

TEST(PlanChoice, ShortCallsAreTriedUntilTheyAreInTheCaches) {
  for (const auto& [bytes, times] :
       {std::pair(1 << 10, 64), std::pair(1 << 18, 16), std::pair(1 << 20, 4)}) {
    TimedCalls calls(2, 1, static_cast<std::size_t>(bytes));
    const std::vector<int> made = calls.make(2 * times, false, {100'000'000, 200'000'000});
    EXPECT_NEAR(made[0], times, 2) << bytes;
    EXPECT_NEAR(made[1], times, 2) << bytes;
  }
}

// A pause of the program's is in the time of the call before it.
TEST(PlanChoice, OneLongTimeChangesNothing) {
  TimedCalls calls(2, 1);
  const std::vector<std::uint64_t> took = {100'000'000, 130'000'000};
  calls.make(2000, false, took);
  int others = 0;
  for (int pause = 0; pause < 40; ++pause) {
    calls.make(1, false, {100'000'000'000});
    others += calls.make(99, false, took)[1];
  }
  EXPECT_LT(others, 200);
}

TEST(PlanChoice, PlansOfOneKindOfMemoryAreNotThoseOfTheOther) {
  TimedCalls calls(1, 3);
  calls.make(200, true, {3'000'000, 2'000'000, 1'000'000});
  EXPECT_EQ(calls.make(102, false, {1'000'000})[0], 100) << "the first two cannot know";
  EXPECT_GT(calls.make(500, true, {3'000'000, 2'000'000, 1'000'000})[2], 400) << "it is known";
}

// What was said of the next call of a size may have meant one that has more plans.
TEST(PlanChoice, CallsOfOneSizeMayHaveOtherPlans) {
  Words words(PlanChoice::kWords);
  PlanChoice leader(words, true);
  PlanChoice other(words, false);
  std::uint64_t now = 1;
  for (int call = 0; call < 1000; ++call) {
    const PlanChoice::Plans plans = call % 3 == 0 ? kTwo : PlanChoice::Plans{4, 4, 11};
    const auto choice = leader.begin(kAllReduce, kBytes, plans, now += 1000);
    EXPECT_EQ(other.begin(kAllReduce, kBytes, plans, 0), choice);
    EXPECT_LT(choice.number, plans.usual);
    leader.met(call % 50 < 25, call % 50 < 25);
    other.met(call % 50 < 25, call % 50 < 25);
  }
}

// Whatever becomes of the buffers under way, the sums are right, and the plan follows.
TEST(PlanChoice, CallsOfPlainMemoryTakeTheOtherPlan) {
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
TEST(PlanChoice, SharedMemoryIsMadeAgain) {
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
TEST(PlanChoice, OneRankOfPlainMemoryIsEnough) {
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

// Of what the calls below have.
constexpr int kCallsOfTry = PlanChoice::calls_of_try(5003 * sizeof(float));

// Each is tried, whatever it takes, by all ranks alike; sums are right by all of them.
void make_calls_by_each_plan(bool plain_others_address) {
  for (const int ranks : {2, 4, 5, 8}) {
    for (const bool shared : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + (shared ? " ranks, shared" : " ranks, plain"));
      Calls calls{Collective::all_reduce, "direct", true};
      calls.plain = "direct";
      calls.plain_others_address = plain_others_address;
      calls.others = {"ring", "tree"};
      Rounds rounds(calls, ranks, 1009, false, [&] { return shared; });
      std::vector<int> made(3);
      for (int call = 0; call < 5 * kCallsOfTry; ++call) {
        ASSERT_NO_FATAL_FAILURE(call % 2 == 0
                                    ? rounds.all_the_general_way()
                                    : static_cast<void>(rounds.together([](Rank) { return 3; })));
        const std::size_t number = rounds.executor(0).plan_number();
        ++made[number];
        for (Rank r = 0; r < ranks; ++r) {
          EXPECT_EQ(rounds.executor(r).plan_number(), number) << r;
          EXPECT_EQ(rounds.executor(r).uses_plain_plan(), !shared && call >= 2) << r;
        }
      }
      for (const int calls_of_plan : made) EXPECT_GE(calls_of_plan, kCallsOfTry);
    }
  }
}

TEST(PlanChoice, CallsAreMadeByEachOfTheirPlans) { make_calls_by_each_plan(false); }

// Though the memory is such that nobody can address it.
TEST(PlanChoice, PlansForPlainMemoryMayExchangeAddresses) { make_calls_by_each_plan(true); }

// Long sums of two, cut into slices: whole through queues, or as for other memory.
TEST(PlanChoice, TheUsualPlanMayBeBesideTheOneForPlainMemory) {
  Calls calls{Collective::all_reduce, "direct", true};
  calls.plain = "one_shot";
  calls.others = {"direct"};
  calls.plain_others_address = true;
  Rounds rounds(calls, 2, 5003, false, [] { return false; });
  std::vector<int> made(2);
  for (int call = 0; call < 3 * kCallsOfTry; ++call) {
    ASSERT_NO_FATAL_FAILURE(rounds.all_the_general_way());
    const std::size_t number = rounds.executor(0).plan_number();
    ++made[number];
    for (const Rank r : {0, 1}) {
      EXPECT_EQ(rounds.executor(r).plan_number(), number) << r;
      EXPECT_EQ(rounds.executor(r).uses_plain_plan(), call >= 2) << r;
    }
  }
  for (const int calls_of_plan : made) EXPECT_GE(calls_of_plan, kCallsOfTry);
}

// Nothing is met in calls through queues, which may be made of memory that could be addressed; but
// rank 0 sees what its own is, should that change meanwhile.
TEST(PlanChoice, PlansThroughQueuesMayBeQuickerThanWhatAddresses) {
  for (const int ranks : {2, 4, 5}) {
    bool shared = true;
    Calls calls{Collective::all_reduce, "direct", true};
    calls.plain = "tree";
    calls.others = {"ring"};
    calls.others_queue = true;
    Rounds rounds(calls, ranks, 1009, false, [&] { return shared; });
    const auto call = [&] {
      ASSERT_NO_FATAL_FAILURE(rounds.all_the_general_way());
      for (Rank r = 0; r < ranks; ++r)
        EXPECT_EQ(rounds.executor(r).plan_number(), rounds.executor(0).plan_number());
    };
    int by_queues = 0;
    for (int i = 0; i < 4 * kCallsOfTry; ++i) {
      ASSERT_NO_FATAL_FAILURE(call());
      by_queues += rounds.executor(0).plan_number() == 1 ? 1 : 0;
      for (Rank r = 0; r < ranks; ++r) EXPECT_FALSE(rounds.executor(r).uses_plain_plan());
    }
    EXPECT_GE(by_queues, kCallsOfTry);
    while (rounds.executor(0).plan_number() != 1) ASSERT_NO_FATAL_FAILURE(call());
    shared = false;
    for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(call());
    for (Rank r = 0; r < ranks; ++r) EXPECT_TRUE(rounds.executor(r).uses_plain_plan());
  }
}

// Who waits long for a rank asks whether it makes the same call.
TEST(PlanChoice, InquiriesAreOfThePlanThatIsUsed) {
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
TEST(PlanChoice, RanksThatDisagreeAreTold) {
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
