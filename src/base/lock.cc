// lock.cc: see lock.hpp.
#include "base/lock.hpp"

#include <chrono>
#include <thread>

#include "base/pause.hpp"

namespace tutti::base {
namespace {

constexpr int kSpins = 200;  // about what it takes to look after a call
constexpr std::chrono::microseconds kNap{20};

}  // namespace

void Lock::wait() {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  for (int looks = 0; held_.exchange(true, std::memory_order_acquire); ++looks) {
    if (looks < kSpins)
      pause_core();
    else
      std::this_thread::sleep_for(kNap);
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tutti::base
