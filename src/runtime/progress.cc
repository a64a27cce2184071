// The list of works that move, one per process, and the thread that moves them where nobody waits.
#include "runtime/progress.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "runtime/own_thread.hpp"
#include "runtime/waiting.hpp"

namespace tutti::runtime {
namespace {

// How long a started work may be left alone: whoever is going to wait for it has come by then.
constexpr std::chrono::microseconds kGrace{500};
constexpr std::chrono::microseconds kNap{Waiter::kSleepUs};
// How often to ask whether others want something of ranks that have failed or agreed.
constexpr std::chrono::milliseconds kListen{10};

struct List {
  std::shared_mutex mutex;  // shared while driving, so that removal waits for drivers to leave
  std::vector<Driven*> members;
  std::atomic<std::size_t> size{0};      // of them
  std::atomic<int> changing{0};          // so many wait to change it: drivers make room
  std::atomic<std::uint32_t> rounds{0};  // of waiters that drove the others
};

class Change {
 public:
  explicit Change(List& list) : list_(list) {
    list_.changing.fetch_add(1, std::memory_order_relaxed);
    list_.mutex.lock();
  }
  ~Change() {
    list_.mutex.unlock();
    list_.changing.fetch_sub(1, std::memory_order_relaxed);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  List& list_;
};

thread_local bool is_progress_thread = false;

// Counts what was started, so that the thread cannot sleep through it: it reads the count, looks at
// all works, and sleeps only as long as the count is the same.
class ProgressThread {
 public:
  explicit ProgressThread(List& list) : list_(list) {}

  void expect_work() {
    starts_.fetch_add(1);
    if (awaits_start_.load()) wake();
    // The thread itself is not to wait for those who end it.
    if (!running_.load() && !is_progress_thread) begin();
  }

  // Ends it, unless there is somebody whom it must serve.
  void end_if_unused() {
    std::lock_guard lock(control_);
    if (!thread_.joinable()) return;
    // Whoever enters the list afterwards sees that there is no thread. Not under the list's lock:
    // those who drive hold it while they begin a thread.
    running_.store(false);
    if (list_.size.load() > 0) {
      running_.store(true);
      return;
    }
    end();
  }

  void end_for_good() {
    std::lock_guard lock(control_);
    running_.store(true);  // not begun again
    if (thread_.joinable()) end();
  }

 private:
  void begin() {
    std::lock_guard lock(control_);
    if (running_.load()) return;
    stopping_.store(false);
    Result<std::thread> thread = begin_own_thread("tutti-progress", [this] { run(); });
    if (!thread.ok()) return;  // see the header
    thread_ = *std::move(thread);
    running_.store(true);
  }

  void end() {
    stopping_.store(true);
    wake();
    thread_.join();
  }

  void wake() {
    std::lock_guard lock(bed_);
    waking_.notify_one();
  }

  // Idle, it yields for a millisecond and then looks once in a millisecond: it never knows whether
  // the core that it is on belongs to somebody who computes.
  void run() {
    is_progress_thread = true;
    Waiter waiter(base::WaitChoice::yield, true, std::chrono::hours(24));
    sleep(kGrace);
    while (!stopping_.load(std::memory_order_relaxed)) {
      const std::uint32_t seen = starts_.load();
      const Tending found = look();
      if (found == Tending::nothing || found == Tending::listens) await_start(seen, found);
      if (found < Tending::idle) sleep(kGrace);
      if (found != Tending::idle)
        waiter.progressed();
      else if (waiter.idle())
        sleep(kNap);
    }
  }

  // What is started meanwhile can wait.
  void sleep(std::chrono::microseconds duration) {
    std::unique_lock lock(bed_);
    waking_.wait_for(lock, duration, [&] { return stopping_.load(); });
  }

  void await_start(std::uint32_t seen, Tending found) {
    const auto up = [&] { return starts_.load() != seen || stopping_.load(); };
    std::unique_lock lock(bed_);
    // Before the count is read again: who starts something counts first and then looks here.
    awaits_start_.store(true);
    if (found == Tending::listens)
      waking_.wait_for(lock, kListen, up);
    else
      waking_.wait(lock, up);
    awaits_start_.store(false);
  }

  Tending look() {
    if (list_.changing.load(std::memory_order_relaxed) > 0) return Tending::tended;
    std::shared_lock lock(list_.mutex, std::try_to_lock);
    if (!lock.owns_lock()) return Tending::tended;
    // A waiter that has time for others drives them all.
    const std::uint32_t rounds = list_.rounds.load(std::memory_order_relaxed);
    const bool driven = std::exchange(rounds_, rounds) != rounds;
    Tending most = Tending::nothing;
    for (Driven* member : list_.members) most = std::max(most, member->tend(driven));
    return most;
  }

  List& list_;
  std::atomic<std::uint32_t> starts_{0};
  std::atomic<bool> awaits_start_{false};
  std::atomic<bool> running_{false};
  std::atomic<bool> stopping_{false};
  std::uint32_t rounds_ = 0;  // of the list, when the thread last looked
  std::mutex bed_;            // with what wakes it
  std::condition_variable waking_;
  std::mutex control_;  // guards what follows
  std::thread thread_;
};

struct Kept {
  explicit Kept(std::uint32_t number) : generation(number) {}
  const std::uint32_t generation;
  List list;
  ProgressThread thread{list};
};

// The one list of the process; see the header. A forked child begins with an empty one: what its
// parent drives is not its own, and a thread that is not there may hold the lock.
Kept& kept() {
  static std::atomic<Kept*> current{new Kept(base::fork_generation())};
  Kept* found = current.load(std::memory_order_acquire);
  if (found->generation == base::fork_generation()) [[likely]]
    return *found;
  auto* fresh = new Kept(base::fork_generation());
  if (current.compare_exchange_strong(found, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;  // another thread of the child was quicker
  return *found;
}

}  // namespace

void begin_driving(Driven& driven) {
  List& list = kept().list;
  const Change change(list);
  list.members.push_back(&driven);
  list.size.store(list.members.size());
}

void end_driving(Driven& driven) {
  List& list = kept().list;
  bool last = false;
  {
    const Change change(list);
    auto& members = list.members;
    members.erase(std::remove(members.begin(), members.end(), &driven), members.end());
    list.size.store(members.size());
    last = members.empty();
  }
  if (last) kept().thread.end_if_unused();
}

bool drive_others(const Driven& self) {
  List& list = kept().list;
  if (list.changing.load(std::memory_order_relaxed) > 0) return false;
  std::shared_lock lock(list.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  list.rounds.fetch_add(1, std::memory_order_relaxed);
  bool moved = false;
  for (Driven* driven : list.members)
    if (driven != &self) moved |= driven->drive();
  return moved;
}

void expect_work() {
  // What a work uses must not go away under the thread while the program exits.
  [[maybe_unused]] static const int registered = std::atexit([] { kept().thread.end_for_good(); });
  kept().thread.expect_work();
}

}  // namespace tutti::runtime
