// doorbell.cc: the system calls behind doorbell.hpp (futex).
#include "transport/fifo/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace tutti::transport::fifo {
namespace {

// The longest sleep. Nothing rings when a peer is killed, so its survivors must get up by
// themselves to notice.
constexpr std::int64_t kSleepMaxUs = 2000;

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout,
                 nullptr, 0);
}

}  // namespace

void wake(Doorbell& doorbell) {
  // Of several that ring at once, one makes the system call.
  if (doorbell.sleeping.exchange(0, std::memory_order_relaxed) == 0) return;
  doorbell.rings.fetch_add(1, std::memory_order_release);
  futex(doorbell.rings, FUTEX_WAKE, 1, nullptr);
}

void Sleeper::wait(std::uint32_t rings, std::int64_t timeout_us) {
  const std::int64_t sleep_us = std::clamp<std::int64_t>(timeout_us, 0, kSleepMaxUs);
  if (sleep_us == 0) return;
  const timespec timeout = {.tv_sec = 0, .tv_nsec = sleep_us * 1000};
  futex(doorbell_->rings, FUTEX_WAIT, rings, &timeout);
}

}  // namespace tutti::transport::fifo
