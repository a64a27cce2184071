// ticks.hpp: the time as cheaply as the processor tells it, in a unit of its own. The recorder
// notes ticks on every call; what they are in seconds is worked out by whoever reads them, from two
// moments that are known in both.
#pragma once

#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti::runtime::flight {

inline std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return monotonic_ns();
#endif
}

// One moment, in both.
struct Moment {
  std::uint64_t ticks = 0;
  std::uint64_t ns = 0;

  static Moment now() { return {flight::ticks(), monotonic_ns()}; }
};

}  // namespace tutti::runtime::flight
