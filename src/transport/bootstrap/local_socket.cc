// local_socket.cc: see local_socket.hpp.
#include "transport/bootstrap/local_socket.hpp"

#include <fmt/format.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/assert.hpp"
#include "base/try.hpp"

namespace tutti::transport {
namespace {

constexpr int kSocketType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

struct LocalAddress {
  sockaddr_un address{};
  socklen_t bytes = 0;
  const sockaddr* pointer() const { return reinterpret_cast<const sockaddr*>(&address); }
};

LocalAddress address_of(const std::string& name) {
  TUTTI_ASSERT(name.size() <= kLocalNameBytesMax, "a local name is too long");
  LocalAddress made;
  made.address.sun_family = AF_UNIX;
  std::memcpy(made.address.sun_path + 1, name.data(), name.size());  // after a zero: abstract
  made.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

ucred credentials_behind(const Socket& socket) {
  ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
  socklen_t bytes = sizeof(peer);
  ::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  return peer;
}

}  // namespace

Result<Socket> listen_at_name(const std::string& name) {
  Socket socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket) return system_failure("socket", errno);
  const LocalAddress address = address_of(name);
  if (::bind(socket.number(), address.pointer(), address.bytes) != 0 ||
      ::listen(socket.number(), SOMAXCONN) != 0)
    return system_failure("cannot listen at a local name", errno);
  return socket;
}

Result<Socket> connect_to_name(const std::string& name) {
  Socket socket(::socket(AF_UNIX, kSocketType, 0));
  if (!socket) return system_failure("socket", errno);
  const LocalAddress address = address_of(name);
  if (::connect(socket.number(), address.pointer(), address.bytes) != 0)
    return Status(StatusCode::peer_lost,
                  fmt::format("not found on this host: {}", std::strerror(errno)));
  if (credentials_behind(socket).uid != ::geteuid())
    return Status(StatusCode::peer_lost, "found on this host, but of another user");
  return socket;
}

Socket accept_local(const Socket& listener, std::string& origin) {
  while (true) {
    Socket socket(::accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return socket;
    const ucred peer = credentials_behind(socket);
    origin = fmt::format("this host, process {}", peer.pid);
    if (peer.uid == ::geteuid()) return socket;
  }
}

}  // namespace tutti::transport
