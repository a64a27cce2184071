// calls.hpp: what the system's answers mean to those who never wait for it.
//
// Knows system calls only.
#pragma once

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <string_view>

namespace tutti::transport::tcp {

inline bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// A small last message on a connection that hardly carries anything that way.
inline bool send_whole(int socket, std::string_view bytes) {
  const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(bytes.size()) || (sent < 0 && !would_block(errno));
}

// Whether the other end's system has said that it has all that was sent. A connection that has
// ended has nothing under way, though the system goes on counting what was never acknowledged.
inline bool arrived(int socket) {
  int bytes = 0;
  if (::ioctl(socket, SIOCOUTQ, &bytes) != 0 || bytes == 0) return true;
  tcp_info info = {};
  socklen_t size = sizeof(info);
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
         info.tcpi_state == TCP_CLOSE;
}

}  // namespace tutti::transport::tcp
