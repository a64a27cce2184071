// death_watch.cc: see death_watch.hpp.
#include "transport/ucx/death_watch.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

#include "transport/bootstrap/socket.hpp"

namespace tutti::transport::ucx {
namespace {

constexpr std::uint64_t kEvents = ~std::uint64_t{0};  // no rank

bool watch(int set, int descriptor, std::uint64_t name) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = name;
  return ::epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

}  // namespace

std::string process_world() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat processes = {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &processes) != 0)
    return fmt::format("alone with {}", ::getpid());  // nobody is near
  return fmt::format("{}/{}", boot, processes.st_ino);
}

Status DeathWatch::start(int events) {
  set_ = base::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!set_.open()) return system_failure("epoll_create1", errno);
  return watch(set_.number(), events, kEvents) ? Status() : system_failure("epoll_ctl", errno);
}

// Where a process cannot be watched for another reason than that it is gone, deadlines tell.
bool DeathWatch::add(Rank rank, std::uint32_t process) {
  if (process == static_cast<std::uint32_t>(::getpid())) return true;
  const auto known = std::find_if(watched_.begin(), watched_.end(),
                                  [&](const Watched& one) { return one.rank == rank; });
  if (known != watched_.end()) return true;
  base::Descriptor found(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!found.open()) return errno != ESRCH;
  if (watch(set_.number(), found.number(), static_cast<std::uint64_t>(rank)))
    watched_.push_back({rank, std::move(found)});
  return true;
}

// The set is asked twice, because only this way of waiting counts in less than milliseconds.
void DeathWatch::wait(std::int64_t timeout_us, const std::function<void(Rank)>& died) {
  pollfd set = {set_.number(), POLLIN, 0};
  const timespec time = {timeout_us / 1'000'000, timeout_us % 1'000'000 * 1000};
  if (::ppoll(&set, 1, &time, nullptr) > 0) report(died);
}

void DeathWatch::report(const std::function<void(Rank)>& died) {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(set_.number(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t name = events[static_cast<std::size_t>(i)].data.u64;
    if (name == kEvents) continue;
    const auto rank = static_cast<Rank>(name);
    // Closing takes it out of the set.
    std::erase_if(watched_, [&](const Watched& one) { return one.rank == rank; });
    died(rank);
  }
}

}  // namespace tutti::transport::ucx
