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
    leader.met(met[call]);
    other.met(!met[call]);  // which nobody asks for
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
    ranks[rank].met(calls % 5 < 3);
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
    leader.met(true);
    EXPECT_FALSE(leader.begin(2 * kBytes));
    leader.met(false);
    EXPECT_FALSE(leader.begin(std::size_t{1} << 60)) << "larger than any buffer";
    leader.met(false);
  }
}

TEST(PlainChoice, WithoutWordsNothingIsAgreed) {
  PlainChoice leader({}, true);
  for (int call = 0; call < 4; ++call) {
    EXPECT_FALSE(leader.begin(kBytes));
    leader.met(true);
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

}  // namespace
}  // namespace tutti::runtime
