// lock.hpp: a lock that is free nearly always, and on the way of every call: taking it costs one
// exchange of a word that this core already has, giving it back a plain store, where a std::mutex
// takes two exchanges and two calls into a library (5 ns against 13, of a call that takes 200).
//
// Who finds it taken looks again every few microseconds: nobody is woken, because a plain store
// tells nobody. Whoever only tries gives way to those who wait, so that a thread which takes the
// lock again and again keeps nobody out.
//
// A Lockable of the standard library.
#pragma once

#include <atomic>

namespace tutti::base {

class Lock {
 public:
  Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  bool try_lock() {
    return waiting_.load(std::memory_order_relaxed) == 0 &&
           !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }
  void lock() {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  void wait();

  std::atomic<bool> held_{false};
  std::atomic<int> waiting_{0};
};

}  // namespace tutti::base
