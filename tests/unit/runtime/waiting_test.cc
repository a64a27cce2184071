// What a thread that waits does, and in which order.
#include "runtime/waiting.hpp"

#include <gtest/gtest.h>

namespace tutti::runtime {
namespace {

using Clock = Waiter::Clock;
constexpr std::chrono::hours kNever{1};
constexpr std::chrono::seconds kLongEnough{20};

// Without cores to share, others need this one all the same: it is not kept for as long as rounds
// of any length take.
TEST(Waiting, SpinsByTheClock) {
  Waiter waiter(base::WaitChoice::automatic, false, kNever);
  for (int again = 0; again < 2; ++again) {
    EXPECT_FALSE(waiter.has_time());
    int rounds = 0;
    const auto begin = Clock::now();
    const auto end = begin + kLongEnough;
    while (!waiter.has_time() && Clock::now() < end) {
      EXPECT_FALSE(waiter.idle()) << "slept before it gave the core away";
      // A round in which a transport looks at many sockets.
      const auto until = Clock::now() + std::chrono::microseconds(50);
      while (Clock::now() < until) {
      }
      ++rounds;
    }
    EXPECT_TRUE(waiter.has_time());
    EXPECT_GT(Clock::now() - begin, std::chrono::microseconds(100));
    EXPECT_LT(rounds, 100) << "of 50 us each";
    waiter.progressed();
  }
}

TEST(Waiting, GivesTheCoreAwayBeforeItSleeps) {
  Waiter waiter(base::WaitChoice::automatic, true, kNever);
  EXPECT_TRUE(waiter.has_time()) << "ranks that share cores give them away at once";
  const auto begin = Clock::now();
  const auto end = begin + kLongEnough;
  while (!waiter.idle() && Clock::now() < end) {
  }
  const auto took = Clock::now() - begin;
  EXPECT_GT(took, std::chrono::microseconds(900));
  EXPECT_LT(took, kLongEnough);
  EXPECT_FALSE(waiter.expired());
}

TEST(Waiting, SleepsOnlyWhereItMay) {
  Waiter spins(base::WaitChoice::spin, false, std::chrono::milliseconds(3));
  const auto end = Clock::now() + kLongEnough;
  while (!spins.expired() && Clock::now() < end) EXPECT_FALSE(spins.idle());
  EXPECT_TRUE(spins.expired());
  Waiter blocks(base::WaitChoice::block, false, kNever);
  EXPECT_TRUE(blocks.idle()) << "sleeps at once";
}

}  // namespace
}  // namespace tutti::runtime
