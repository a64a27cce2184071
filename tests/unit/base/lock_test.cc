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

// A thread that takes it again and again, as one that waits for a call does, lets another one in.
TEST(Lock, WhoTriesGivesWayToWhoWaits) {
  Lock lock;
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) {
      std::unique_lock guard(lock, std::try_to_lock);
      if (guard.owns_lock()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int i = 0; i < 20; ++i) {
    const std::lock_guard guard(lock);
  }
  stop.store(true);
  busy.join();
}

}  // namespace
}  // namespace tutti::base
