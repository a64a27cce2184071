// calls.hpp: what the system's answers mean to those who never wait for it.
//
// Knows system calls only.
#pragma once

#include <linux/sockios.h>
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
// ended has nothing under way.
inline bool arrived(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

}  // namespace tutti::transport::tcp
