// lock_test.cc: one thread at a time, and nobody is kept out.
#include "base/lock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::base {
namespace {

TEST(Lock, LetsOneThreadInAtATime) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  Lock lock;
  int count = 0;  // not atomic on purpose
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        const std::lock_guard guard(lock);
        ++count;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(Lock, TriesFailWhileItIsTaken) {
  Lock lock;
  ASSERT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

// Otherwise a thread that takes it again and again, as one that waits for a call does, would keep
// the others out. Most rounds and not all, because a busy machine may not let the other one wait in
// time.
TEST(Lock, WhoTriesGivesWayToWhoWaits) {
  constexpr int kRounds = 20;
  int gave_way = 0;
  for (int round = 0; round < kRounds; ++round) {
    Lock lock;
    lock.lock();
    std::thread other([&] { const std::lock_guard guard(lock); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    lock.unlock();
    const bool taken = lock.try_lock();
    if (taken) lock.unlock();
    gave_way += taken ? 0 : 1;
    other.join();
  }
  EXPECT_GT(gave_way, kRounds / 2);
}

}  // namespace
}  // namespace tutti::base
