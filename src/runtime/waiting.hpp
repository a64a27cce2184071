// waiting.hpp: what a thread does while nothing moves, and when it gives up.
//
// Three stages: spin (the answer is usually nanoseconds away; not for long, because others may need
// the core that nobody knows of, and giving it away when nobody does costs a third of a
// microsecond), give the core away (with more ranks than cores at the first miss, because the peer
// may need this very core), sleep (after about a millisecond without progress). Measured on two
// cores, four ranks, a barrier: 53 us with spinning before blocking, 1.3 us with yielding at the
// first miss. In small calls ranks that are bound to a core know better, whether the one that is
// missed needs it: see Executor::misses_neighbour().
//
// The only place of the runtime that waits by a clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/config.hpp"

namespace tutti::runtime {

class Waiter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t kSleepUs = 1000;

  // `shared`: more ranks than cores on this host.
  Waiter(base::WaitChoice choice, bool shared, std::chrono::milliseconds timeout);

  // Whether a core is given away at the first miss.
  static bool yields_at_once(base::WaitChoice choice, bool shared) {
    return choice == base::WaitChoice::yield || (choice == base::WaitChoice::automatic && shared);
  }

  // Something moved: start over.
  void progressed() {
    idle_rounds_ = 0;
    looking_ = sleeping_ = long_ = told_long_ = spun_ = false;
  }

  // Nothing moved: spins or yields for a moment and returns false, or says (true) that it is time
  // to sleep for up to kSleepUs.
  bool idle();

  // True while the waiter has been idle long enough to look after others' work too.
  bool has_time() const { return yields_at_once_ || spun_; }

  // Once, when nothing has moved for as long as no healthy peer takes to answer.
  bool is_long() { return std::exchange(long_, false); }

  // How often to look for news before calling idle(): looks under one lock are cheaper, but a core
  // that others need should be given away soon.
  int rounds() const { return yields_at_once_ || sleeps_at_once_ ? 1 : 32; }

  // The deadline has passed. Cost: the clock is read now and then while idle, not here.
  bool expired() const { return expired_; }

  // When the clock was last read, while idle. Cost: nothing.
  Clock::time_point last_look() const { return last_look_; }

 private:
  bool has_spun();
  void look_at_clock();

  bool yields_at_once_;
  bool spins_;
  bool sleeps_at_once_;
  int idle_rounds_ = 0;
  bool spun_ = false;     // long enough
  bool started_ = false;  // first_idle_ is set
  bool looking_ = false;  // idle_since_ is set
  bool sleeping_ = false;
  bool long_ = false;
  bool told_long_ = false;
  bool expired_ = false;
  std::chrono::milliseconds timeout_;
  Clock::time_point spins_since_{};
  Clock::time_point first_idle_{};
  Clock::time_point idle_since_{};
  Clock::time_point last_look_{};
};

}  // namespace tutti::runtime
