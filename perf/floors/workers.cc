// workers.cc: see workers.hpp.
#include "perf/floors/workers.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace tutti::floors {
namespace {

constexpr int kSpinsBeforeYield = 1 << 15;  // something else may hold the other's core

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

}  // namespace

void wait_for(const std::atomic<std::uint64_t>& value, std::uint64_t target) {
  for (int spin = 0; value.load(std::memory_order_acquire) < target; ++spin)
    if (spin >= kSpinsBeforeYield) sched_yield();
}

void pin(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) fail("sched_getaffinity");
  if (CPU_COUNT(&allowed) <= index) return;
  int cpu = 0;
  for (int before = index; !CPU_ISSET(cpu, &allowed) || before-- > 0;) ++cpu;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(cpu, &mine);
  if (sched_setaffinity(0, sizeof(mine), &mine) != 0) fail("sched_setaffinity");
}

std::unique_ptr<Workers> Workers::split(std::size_t heap) {
  void* memory = mmap(nullptr, kOwnBytes + kCommonBytes + 2 * heap, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  std::unique_ptr<Workers> workers(new Workers(static_cast<std::byte*>(memory), heap));
  const pid_t first = getpid();
  const pid_t second = fork();
  if (second < 0) fail("fork");
  workers->index_ = second == 0 ? 1 : 0;
  workers->other_process_ = second == 0 ? first : second;
  if (second == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Each may reach into the other's memory, which some systems allow to parents only.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  pin(workers->index_);
  return workers;
}

Workers::~Workers() {
  if (index_ != 0) return;
  int status = 0;
  if (waitpid(other_process_, &status, 0) != other_process_ || status != 0) {
    std::fprintf(stderr, "the second worker failed\n");
    std::_Exit(1);
  }
}

}  // namespace tutti::floors
