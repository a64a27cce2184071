// cpu.cc: affinity, control-group quotas and core numbering on Linux; see cpu.hpp.
#include "base/cpu.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>

#include "base/text.hpp"

namespace tutti::base {
namespace {

struct CpuSetDeleter {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, CpuSetDeleter>;

// The hardware threads that the kernel lets us run on. The kernel refuses sets smaller than its
// own, whose size it does not tell, so ours grows until it is accepted.
std::vector<int> allowed_cpus() {
  for (int capacity = 1024; capacity <= (1 << 20); capacity *= 2) {
    const CpuSet set(CPU_ALLOC(capacity));
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::vector<int> cpus;
    for (int cpu = 0; cpu < capacity; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    return cpus;
  }
  return {0};
}

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// Cores' worth of time that control groups grant: version 2 writes "quota period" or "max period",
// version 1 the two numbers in files of their own. Infinite where nothing limits.
double granted_cores() {
  double quota = -1, period = 0;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); !(file >> quota >> period)) {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : INFINITY;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  constexpr int highest_cpu = 1 << 20;
  std::vector<int> cpus;
  for (const std::string_view piece : split(text, ',')) {
    const std::size_t dash = piece.find('-');
    const auto first = parse_integer(piece.substr(0, dash), 0, highest_cpu);
    const auto last = dash == std::string_view::npos
                          ? first
                          : parse_integer(piece.substr(dash + 1), 0, highest_cpu);
    if (!first.ok() || !last.ok()) break;
    // Lists ascend; one that did not could name the same range over and over.
    if (!cpus.empty() && *first <= cpus.back()) break;
    for (std::int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

std::vector<Core> allowed_cores() {
  std::vector<Core> cores;
  std::vector<int> left = allowed_cpus();
  while (!left.empty()) {
    const int first = left.front();
    const auto siblings = parse_cpu_list(first_line(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", first)));
    Core core = {first};
    left.erase(left.begin());
    for (const int sibling : siblings) {
      const auto found = std::find(left.begin(), left.end(), sibling);
      if (found == left.end()) continue;
      core.push_back(sibling);
      left.erase(found);
    }
    cores.push_back(std::move(core));
  }
  return cores;
}

int usable_cpu_count() {
  const auto cpus = static_cast<double>(allowed_cpus().size());
  return std::max(1, static_cast<int>(std::min(cpus, std::ceil(granted_cores()))));
}

Status bind_to(std::span<const int> cpus) {
  const int capacity = cpus.empty() ? 1 : *std::max_element(cpus.begin(), cpus.end()) + 1;
  const CpuSet set(CPU_ALLOC(capacity));
  const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
  CPU_ZERO_S(bytes, set.get());
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
  if (sched_setaffinity(0, bytes, set.get()) == 0) return {};
  return Status(StatusCode::system_error,
                fmt::format("cannot bind to {} cores: {}", cpus.size(), std::strerror(errno)));
}

}  // namespace tutti::base
