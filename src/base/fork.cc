// Counted by the C library's own notice of forks, so that asking costs no system call.
#include "base/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace tutti::base {
namespace {

std::atomic<std::uint32_t>& generation() {
  static std::atomic<std::uint32_t> count{0};
  return count;
}

}  // namespace

std::uint32_t fork_generation() {
  // Whoever asks has asked before it forks, at the latest when it made what it asks about.
  [[maybe_unused]] static const int registered = pthread_atfork(
      nullptr, nullptr, [] { generation().fetch_add(1, std::memory_order_relaxed); });
  return generation().load(std::memory_order_relaxed);
}

}  // namespace tutti::base
