// poller.hpp: one epoll set, edge-triggered, whose events carry a small key instead of a pointer,
// so that an event that outlives its socket is harmless.
//
// Edges mean: who takes an event remembers it until the socket says "would block".
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>

#include "transport/bootstrap/socket.hpp"
#include "tutti/status.hpp"

namespace tutti::transport::tcp {

enum class Watched : std::uint8_t {
  listener,
  stranger,    // id: descriptor
  frames_out,  // id of these: endpoint number
  frames_in,
  signals_out,
  signals_in,
};

class Poller {
 public:
  static Result<Poller> make();

  // Begins to watch a socket, or changes its key. A closed socket is forgotten by itself.
  Status watch(const Socket& socket, Watched what, std::uint32_t id) const;

  // Waits at most `timeout_us` for events and hands each to take(what, id, events). True when
  // there were any.
  template <typename Take>
  bool wait(std::int64_t timeout_us, const Take& take) {
    const int count = wait_raw(timeout_us);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events_[static_cast<std::size_t>(i)];
      take(static_cast<Watched>(event.data.u64 >> 32), static_cast<std::uint32_t>(event.data.u64),
           event.events);
    }
    return count > 0;
  }

 private:
  int wait_raw(std::int64_t timeout_us);

  Socket epoll_;
  std::array<epoll_event, 64> events_{};
};

// The events after which a read may find the end of the stream.
inline constexpr std::uint32_t kEndEvents = EPOLLRDHUP | EPOLLHUP | EPOLLERR;

}  // namespace tutti::transport::tcp
