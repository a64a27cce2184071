// poller.cc: see poller.hpp.
#include "transport/tcp/poller.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace tutti::transport::tcp {

Result<Poller> Poller::make() {
  Poller poller;
  poller.epoll_ = Socket(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller.epoll_) return system_failure("epoll_create", errno);
  return poller;
}

Status Poller::watch(const Socket& socket, Watched what, std::uint32_t id) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = (static_cast<std::uint64_t>(what) << 32) | id;
  const int set = epoll_.number();
  if (::epoll_ctl(set, EPOLL_CTL_ADD, socket.number(), &event) == 0) return Status();
  if (errno == EEXIST && ::epoll_ctl(set, EPOLL_CTL_MOD, socket.number(), &event) == 0)
    return Status();
  return system_failure("epoll_ctl", errno);
}

int Poller::wait_raw(std::int64_t timeout_us) {
  const int most = static_cast<int>(events_.size());
  if (timeout_us <= 0) return std::max(0, ::epoll_wait(epoll_.number(), events_.data(), most, 0));
  const timespec time{timeout_us / 1'000'000, timeout_us % 1'000'000 * 1000};
  const int count = ::epoll_pwait2(epoll_.number(), events_.data(), most, &time, nullptr);
  if (count >= 0 || errno != ENOSYS) return std::max(0, count);
  // Kernels before 5.11 know milliseconds only; the caller may be woken early, but not late.
  const auto timeout_ms = static_cast<int>(std::min<std::int64_t>(timeout_us / 1000, 1'000'000));
  return std::max(0, ::epoll_wait(epoll_.number(), events_.data(), most, timeout_ms));
}

}  // namespace tutti::transport::tcp
