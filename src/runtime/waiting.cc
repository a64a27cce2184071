// Spinning, yielding and sleeping.
#include "runtime/waiting.hpp"

#include <sched.h>

#include "base/pause.hpp"

namespace tutti::runtime {
namespace {

constexpr std::chrono::microseconds kSpinFor{100};
constexpr std::chrono::microseconds kSleepAfter{1000};
constexpr std::chrono::milliseconds kLong{2000};
constexpr int kRoundsPerLook = 64;     // at the clock
constexpr int kSpinRoundsPerLook = 8;  // each of them looks for news 32 times

}  // namespace

Waiter::Waiter(base::WaitChoice choice, bool shared, std::chrono::milliseconds timeout)
    : yields_at_once_(yields_at_once(choice, shared)),
      spins_(choice == base::WaitChoice::spin),
      sleeps_at_once_(choice == base::WaitChoice::block),
      timeout_(timeout) {}

bool Waiter::idle() {
  ++idle_rounds_;
  const bool still_spinning = !yields_at_once_ && !sleeps_at_once_ && !has_spun();
  if (still_spinning || (spins_ && looking_ && idle_rounds_ % kRoundsPerLook != 0)) {
    base::pause_core();
    return false;
  }
  if (!looking_ || idle_rounds_ % kRoundsPerLook == 0 || sleeping_) look_at_clock();
  if (!sleeping_ && !spins_) sched_yield();
  return sleeping_;
}

bool Waiter::has_spun() {
  if (spun_ || idle_rounds_ % kSpinRoundsPerLook != 0) return spun_;
  const Clock::time_point now = Clock::now();
  if (idle_rounds_ == kSpinRoundsPerLook) spins_since_ = now;
  spun_ = now - spins_since_ > kSpinFor;
  return spun_;
}

void Waiter::look_at_clock() {
  const Clock::time_point now = Clock::now();
  if (!started_) first_idle_ = now;
  if (!looking_) idle_since_ = now;
  started_ = looking_ = true;
  last_look_ = now;
  expired_ = now - first_idle_ > timeout_;
  if (now - idle_since_ > kLong && !std::exchange(told_long_, true)) long_ = true;
  sleeping_ = !spins_ && (sleeps_at_once_ || now - idle_since_ > kSleepAfter);
}

}  // namespace tutti::runtime
