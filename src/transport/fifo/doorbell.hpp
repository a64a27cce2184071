// doorbell.hpp: how a rank sleeps until another one did something for it.
//
// A sleeper says so in its doorbell and waits on a futex; whoever commits a frame, releases one or
// raises a counter looks at the doorbell and wakes the sleeper. Between "I looked, there was
// nothing" and "I sleep" lies the classic race: each side must store, then load, and the processor
// may swap the two. A fence in the sender would cost it the wait for its own store to become
// visible, on every frame, for the sake of a rare sleeper. So the sleeper pays for both: it asks
// the kernel to fence every core that runs a rank (membarrier), which costs microseconds before a
// sleep that costs fifty. Where the kernel does not offer that, sleeps are cut into slices of a
// millisecond; a wake-up is late then, never lost.
//
// Does not know what there is to wait for: the sleeper passes a function that looks.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::transport::fifo {

// One rank's line in memory that its peers can write.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> rings;     // what the futex waits on
  std::atomic<std::uint32_t> sleeping;  // 1: ring, please
  std::atomic<std::uint32_t> mail;      // how often a peer sent something over a socket
  std::atomic<std::uint32_t> left;      // 1: the rank closed its transport in good order
};
static_assert(sizeof(Doorbell) == 64);

// Wakes the sleeper. Cost: two system calls' worth of the kernel's time.
void wake(Doorbell& doorbell);

// To be called after every store that a sleeping peer may be waiting for.
// Cost: one load of a line that seldom changes.
inline void ring(Doorbell& doorbell) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (doorbell.sleeping.load(std::memory_order_relaxed) != 0) wake(doorbell);
}

// Which cores a fence must reach.
enum class Scope { process, host };

// The sleeping side of one doorbell.
//
// Threading  one thread.
class Sleeper {
 public:
  // Every rank of the scope makes one before anybody rings: that is what registers its process.
  Sleeper(Doorbell& doorbell, Scope scope);

  // Sleeps until somebody rings, at most `timeout_us` and at most a few milliseconds (so that the
  // caller can look after what rings no bell: a peer that died). Returns at once when `look()` is
  // true after the peers have been told that we sleep.
  template <typename Look>
  void sleep(std::int64_t timeout_us, Look look) {
    const std::uint32_t rings = lie_down();
    if (!look()) wait(rings, timeout_us);
    get_up();
  }

 private:
  std::uint32_t lie_down();
  void wait(std::uint32_t rings, std::int64_t timeout_us);
  void get_up() { doorbell_->sleeping.store(0, std::memory_order_relaxed); }

  Doorbell* doorbell_;
  int fence_command_ = 0;  // 0: the kernel has none
};

}  // namespace tutti::transport::fifo
