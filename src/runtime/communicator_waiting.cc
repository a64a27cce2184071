// How a rank that waits for a call drives it: which looks it takes, when it gives its core away,
// sleeps, or gives up. What a look finds is the business of the executor.
#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "base/try.hpp"
#include "runtime/communicator_state.hpp"

namespace tutti::runtime {
namespace {

constexpr unsigned kTestsPerLook = 256;  // at the clock

}  // namespace

// Whether the work lacks what comes of a rank that needs this core for it.
bool CommunicatorState::needs_neighbour(const WorkState& work) {
  return immediate_ && current_ == &work && executor_->may_linger() &&
         executor_->misses_neighbour();
}

// What a small call waits for is nearly there: nothing else is looked at meanwhile, but now and
// then the transport has its turn all the same. True: it was not that turn.
bool CommunicatorState::linger(const WorkState& work) {
  if (!immediate_ || !executor_->may_linger() || ++lingers_since_poll_ >= kLingersPerPoll) {
    lingers_since_poll_ = 0;
    return false;
  }
  bool moved = true;
  while (moved && current_ == &work) {
    moved = executor_->linger(looks_);
    if (moved) conclude(true);
  }
  return true;
}

// One look at what `work` waits for, where the core is given away after it.
bool CommunicatorState::glance(const WorkState& work) {
  if (forked()) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || std::exchange(looked_, false)) return false;
  if (current_ != &work || !linger(work)) return drive_locked();
  return work.done();
}

// Up to `rounds` looks while nothing moves, under one lock.
bool CommunicatorState::drive_until(const WorkState* work, int rounds) {
  if (forked()) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  for (int round = 0; round < rounds; ++round) {
    if (drive_locked()) return true;
    if (work != nullptr && work->done()) return true;
  }
  return false;
}

void CommunicatorState::give_up(WorkState& work) {
  const std::optional<flight::Culprit> culprit = find_culprit();
  std::lock_guard lock(mutex_);
  if (work.done() || current_ == nullptr) return;
  const Executor::Awaited awaited = executor_->awaited();
  const std::string chain = culprit ? fmt::format(": {}", to_string(*culprit)) : "";
  executor_->fail(Status(StatusCode::timeout,
                         fmt::format("rank {}: {}: not complete after {} ms; waits for {}{}",
                                     rank(), to_string(current_->call_.signature),
                                     parts_.timeout.count(), awaited.what, chain),
                         culprit ? culprit->rank : awaited.rank));
  conclude(true);
}

Status CommunicatorState::wait(WorkState& work) {
  TUTTI_TRY(check_process());
  Waiter waiter(parts_.config.wait, parts_.ranks_share_cores, parts_.timeout);
  const Attendance here(attended_);
  while (!work.done()) {
    bool moved = waiter.rounds() == 1 ? glance(work) : drive_until(&work, waiter.rounds());
    if (!moved && waiter.has_time()) moved = drive_others(*this);
    if (moved) {
      waiter.progressed();
      if (watch_.slow() && !work.done()) [[unlikely]]
        look_after_wait(Waiter::Clock::now());
      continue;
    }
    if (work.done()) break;
    if (waiter.is_long()) inquire();
    if (waiter.idle()) sleep();
    if (watch_.due(waiter.last_look())) look_after_wait(waiter.last_look());
    if (waiter.expired()) give_up(work);
  }
  if (!work.status_.ok())
    watch_.forget();
  else if (watch_.slow()) [[unlikely]]
    look_after_wait(Waiter::Clock::now());
  return work.status_;
}

// Under the lock, because no other thread may use the transport meanwhile; whatever could complete
// the work ends the sleep.
void CommunicatorState::sleep() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  executor_->prepare_to_sleep();
  transport_->sleep(Waiter::kSleepUs);
  // That was long compared with a poll: look at everything next.
  idle_polls_ = parts_.patience.idle_polls;
  idle_rounds_ = parts_.patience.idle_rounds;
  lingers_since_poll_ = kLingersPerPoll;
}

bool CommunicatorState::test(WorkState& work) {
  if (work.done()) return true;
  static_cast<void>(drive());
  if (!work.done() && ++test_looks_ % kTestsPerLook == 0) look_after_wait(Waiter::Clock::now());
  return work.done();
}

}  // namespace tutti::runtime
