// doorbell.cc: the system calls behind doorbell.hpp (futex, membarrier).
#include "transport/fifo/doorbell.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace tutti::transport::fifo {
namespace {

// The longest sleep. Nothing rings when a peer is killed, so its survivors must get up by
// themselves to notice.
constexpr std::int64_t kSleepMaxUs = 5000;
constexpr std::int64_t kSleepMaxWithoutFenceUs = 1000;

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout,
                 nullptr, 0);
}

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

void wake(Doorbell& doorbell) {
  // Of several that ring at once, one makes the system call.
  if (doorbell.sleeping.exchange(0, std::memory_order_relaxed) == 0) return;
  doorbell.rings.fetch_add(1, std::memory_order_release);
  futex(doorbell.rings, FUTEX_WAKE, 1, nullptr);
}

Sleeper::Sleeper(Doorbell& doorbell, Scope scope) : doorbell_(&doorbell) {
  const bool host = scope == Scope::host;
  const int registration =
      host ? MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED : MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
  if (membarrier(registration) == 0)
    fence_command_ = host ? MEMBARRIER_CMD_GLOBAL_EXPEDITED : MEMBARRIER_CMD_PRIVATE_EXPEDITED;
}

std::uint32_t Sleeper::lie_down() {
  const std::uint32_t rings = doorbell_->rings.load(std::memory_order_acquire);
  doorbell_->sleeping.store(1, std::memory_order_seq_cst);
  // This fences the caller, too.
  if (fence_command_ != 0) membarrier(fence_command_);
  return rings;
}

void Sleeper::wait(std::uint32_t rings, std::int64_t timeout_us) {
  const std::int64_t most_us = fence_command_ != 0 ? kSleepMaxUs : kSleepMaxWithoutFenceUs;
  const std::int64_t sleep_us = std::clamp<std::int64_t>(timeout_us, 0, most_us);
  const timespec timeout = {.tv_sec = 0, .tv_nsec = sleep_us * 1000};
  futex(doorbell_->rings, FUTEX_WAIT, rings, &timeout);
}

}  // namespace tutti::transport::fifo
