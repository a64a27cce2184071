// launch_queue.cc: see launch_queue.hpp.
#include "nccl/launch_queue.hpp"

#include <utility>

namespace tutti::nccl {

// A device reads the cell, too: nothing that the calls wrote may come after it.
void Launch::let_go() { __atomic_store_n(cell, 1U, __ATOMIC_RELEASE); }

void LaunchQueue::announce(void* launch) {
  Launch& announced = *static_cast<Launch*>(launch);
  announced.queue->push(announced);
}

void LaunchQueue::push(Launch& launch) {
  std::lock_guard lock(mutex_);
  if (ended_) return launch.let_go();
  announced_.push_back(&launch);
  changed_.notify_all();
}

Launch* LaunchQueue::next() {
  std::unique_lock lock(mutex_);
  busy_ = false;
  if (std::exchange(counts_, false)) ++done_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !announced_.empty() || ended_; });
  if (announced_.empty()) return nullptr;
  Launch* const launch = announced_.front();
  announced_.pop_front();
  busy_ = true;
  counts_ = !launch->captured;
  return launch;
}

void LaunchQueue::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return announced_.empty() && !busy_; });
}

void LaunchQueue::wait_until_done(std::uint64_t launches) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= launches || ended_; });
}

void LaunchQueue::end() {
  std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace tutti::nccl
