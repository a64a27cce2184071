// signal_flow.cc: signals out and signals in; see flow.hpp.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/try.hpp"
#include "transport/tcp/congestion.hpp"
#include "transport/tcp/flow.hpp"

namespace tutti::transport::tcp {

Status SignalSender::open(const SocketAddress& address, const Introduce& introduce) {
  Result<Socket> socket = start_connecting_unpaced(address);
  closed_ = socket.status().code() == StatusCode::peer_lost;
  if (closed_) return Status();
  TUTTI_TRY(socket);
  const Result<SocketAddress> origin = local_address(*socket);
  TUTTI_TRY(origin);
  socket_ = std::move(*socket);
  going_ = introduce(*origin).greeting;
  return Status();
}

void SignalSender::raise(Signal which, std::uint64_t value) {
  const auto index = static_cast<std::size_t>(which);
  values_[index] = value;
  dirty_[index] = true;
  flush();
}

bool SignalSender::flush() {
  bool moved = false;
  while (!blocked_ && !closed_) {
    if (sent_ == going_.size()) {
      const auto next = std::find(dirty_.begin(), dirty_.end(), true);
      if (next == dirty_.end()) return moved;
      const auto index = static_cast<std::size_t>(next - dirty_.begin());
      const Raise raise{index, values_[index]};
      going_.assign(reinterpret_cast<const char*>(&raise), sizeof(raise));
      sent_ = 0;
      *next = false;
    }
    const ssize_t sent =
        ::send(socket_.number(), going_.data() + sent_, going_.size() - sent_, MSG_NOSIGNAL);
    if (sent >= 0) sent_ += static_cast<std::size_t>(sent);
    if (sent >= 0) moved = true;
    if (sent >= 0 || errno == EINTR) continue;
    blocked_ = errno == EAGAIN || errno == EWOULDBLOCK;
    closed_ = !blocked_;
  }
  return moved;
}

void SignalSender::on_events(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) blocked_ = false;
}

bool SignalReceiver::receive() {
  const ssize_t got = ::recv(socket_.number(), buffer_.data() + got_, buffer_.size() - got_, 0);
  if (got <= 0) {
    if (got == 0 || errno != EINTR) ready_ = false;
    return false;
  }
  got_ += static_cast<std::size_t>(got);
  std::size_t at = 0;
  for (; got_ - at >= sizeof(Raise); at += sizeof(Raise)) {
    Raise raise;
    std::memcpy(&raise, buffer_.data() + at, sizeof(raise));
    take(raise);
  }
  std::memmove(buffer_.data(), buffer_.data() + at, got_ - at);  // less than one raise
  got_ -= at;
  return true;
}

void SignalReceiver::take(const Raise& raise) {
  if (raise.which >= values_.size()) {
    corrupt_ = true;
    return;
  }
  std::uint64_t& value = values_[static_cast<std::size_t>(raise.which)];
  value = std::max(value, raise.value);
}

}  // namespace tutti::transport::tcp
