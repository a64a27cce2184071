// doorbell.hpp: how a rank sleeps until another one did something for it.
//
// A sleeper says so in its doorbell and waits on a futex; whoever commits a frame, releases one or
// raises a counter looks at the doorbell and wakes the sleeper. Between "I looked, there was
// nothing" and "I sleep" lies the classic race: each side must store, then load, and the sender's
// processor may do the load while its store still waits to become visible. A fence would cost the
// sender that wait on every frame (12 ns, and up to a cache miss), for the sake of a rare sleeper;
// asking the kernel to fence all other cores (membarrier) costs the sleeper 16 us and interrupts
// every peer for 9. So the sleeper looks on for a while after it has said that it sleeps: a store
// becomes visible within a microsecond or so, and then the sleeper sees it. Should one ever take
// longer, the wake-up comes late, when the sleep's slice of two milliseconds ends; it is never
// lost.
//
// Does not know what there is to wait for: the sleeper passes a function that looks.
#pragma once

#include <atomic>
#include <chrono>
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

// A word in memory that ranks share, and the number that a sleeper waits for.
struct AwaitedWord {
  const std::atomic<std::uint64_t>* word = nullptr;
  std::uint64_t number = 0;

  bool came() const { return word != nullptr && word->load(std::memory_order_acquire) == number; }
};

// The sleeping side of one doorbell.
//
// Threading  one thread.
class Sleeper {
 public:
  explicit Sleeper(Doorbell& doorbell) : doorbell_(&doorbell) {}

  // Sleeps until somebody rings, at most `timeout_us` and at most two milliseconds (so that the
  // caller can look after what rings no bell: a peer that died). Returns at once when `look()` is
  // true after the peers have been told that we sleep.
  template <typename Look>
  void sleep(std::int64_t timeout_us, Look look) {
    const std::uint32_t rings = doorbell_->rings.load(std::memory_order_acquire);
    doorbell_->sleeping.store(1, std::memory_order_seq_cst);
    const auto grace_end = Clock::now() + kGrace;
    bool found = look();
    while (!found && Clock::now() < grace_end) found = look();
    if (!found) wait(rings, timeout_us);
    doorbell_->sleeping.store(0, std::memory_order_relaxed);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kGrace{5};

  void wait(std::uint32_t rings, std::int64_t timeout_us);

  Doorbell* doorbell_;
};

}  // namespace tutti::transport::fifo
