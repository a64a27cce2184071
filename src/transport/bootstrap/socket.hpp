// socket.hpp: TCP sockets with one owner, and host names turned into addresses (IPv4 and IPv6).
//
// All sockets are non-blocking and close-on-exec. Knows no protocol.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "tutti/status.hpp"

namespace tutti::transport {

using Socket = base::Descriptor;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  bool loopback() const;
  bool wildcard() const;  // 0.0.0.0 or ::
  int port() const;
  void set_port(int port);
  std::string host() const;       // numeric
  std::string to_string() const;  // "127.0.0.1:29500", "[::1]:29500"
  // Address and port as bytes, the same on every host that sees them.
  std::string identity() const;
};

// The addresses of a host name or numeric address, best first.
// Blocking  while the system's resolver works. Errors  system_error for an unknown host (which may
//           become known: clusters register names while jobs start).
Result<std::vector<SocketAddress>> resolve(const std::string& host, int port);

// A numeric address, as SocketAddress::host gives it. Errors  invalid_argument.
Result<SocketAddress> parse_address(const std::string& host, int port);

// Listens; port 0 lets the system choose, and when it has none left to give, any port that is free.
// Errors  system_error with the address and the reason.
Result<Socket> listen_on(const SocketAddress& address);

// Begins to connect: the socket becomes writable when connected or failed (ask connect_error).
// `prepare` gets the socket before that.
// Errors  peer_lost when the other side refuses at once, system_error when there is no socket.
Result<Socket> start_connecting(const SocketAddress& address,
                                const std::function<void(const Socket&)>& prepare = {});

// The errno of a connection attempt that came to an end; 0 when it succeeded.
int connect_error(const Socket& socket);

// The next waiting connection and where it came from; an empty socket when there is none.
Socket accept_from(const Socket& listener, SocketAddress& origin);

// The address that a socket is bound to.
Result<SocketAddress> local_address(const Socket& socket);

// Small messages leave at once.
void set_no_delay(const Socket& socket);

// system_error: "what: strerror(error)".
Status system_failure(const std::string& what, int error);

}  // namespace tutti::transport
