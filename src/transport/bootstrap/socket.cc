// socket.cc: see socket.hpp.
#include "transport/bootstrap/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <random>

namespace tutti::transport {
namespace {

constexpr int kBacklog = 4096;  // the kernel lowers it to net.core.somaxconn

// Below the ports that Linux gives to whoever does not care (32768 to 60999), above the well-known.
constexpr int kOwnPortMin = 20000;
constexpr int kOwnPortMax = 32767;
constexpr int kOwnPortTries = 64;

const sockaddr* as_sockaddr(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

Result<Socket> make_socket(const SocketAddress& address) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return system_failure("socket", errno);
  return socket;
}

Result<std::vector<SocketAddress>> look_up(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return Status(StatusCode::system_error,
                  "cannot resolve host '" + host + "': " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.bytes = each->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty())
    return Status(StatusCode::system_error, "host '" + host + "' has no address");
  return addresses;
}

// The errno of the attempt; 0 when the socket listens.
int try_to_listen(const Socket& socket, const SocketAddress& address) {
  // A job that starts right after another on the same port must not wait for old connections.
  const int on = 1;
  ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.number(), as_sockaddr(address), address.bytes) != 0) return errno;
  return ::listen(socket.number(), kBacklog) == 0 ? 0 : errno;
}

// The system gives away no port on which an old connection still waits for stray packets, for a
// minute each: who starts and ends many jobs uses all of them up. A port that is asked for by its
// number is free all the same.
Result<Socket> listen_on_own_port(SocketAddress address, const Status& why_not) {
  std::random_device draw;
  std::uniform_int_distribution<int> ports(kOwnPortMin, kOwnPortMax);
  for (int tries = 0; tries < kOwnPortTries; ++tries) {
    Result<Socket> socket = make_socket(address);
    if (!socket.ok()) return socket;
    address.set_port(ports(draw));
    if (try_to_listen(*socket, address) == 0) return socket;
  }
  return why_not;
}

}  // namespace

Status system_failure(const std::string& what, int error) {
  return Status(StatusCode::system_error, what + ": " + std::strerror(error));
}

bool SocketAddress::loopback() const {
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (storage.ss_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool SocketAddress::wildcard() const {
  if (storage.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr == INADDR_ANY;
  return storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
}

int SocketAddress::port() const {
  if (storage.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
}

void SocketAddress::set_port(int port) {
  const in_port_t number = htons(static_cast<std::uint16_t>(port));
  if (storage.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = number;
  if (storage.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = number;
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(as_sockaddr(*this), bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  return text;
}

std::string SocketAddress::to_string() const {
  const std::string name = host();
  const std::string shown = storage.ss_family == AF_INET6 ? "[" + name + "]" : name;
  return shown + ":" + std::to_string(port());
}

// Without the scope, which each host numbers for itself.
std::string SocketAddress::identity() const {
  std::string made;
  const auto add = [&](const auto& value) {
    made.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  if (storage.ss_family == AF_INET) {
    add(reinterpret_cast<const sockaddr_in&>(storage).sin_addr);
    add(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  } else if (storage.ss_family == AF_INET6) {
    add(reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
    add(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  }
  return made;
}

Result<std::vector<SocketAddress>> resolve(const std::string& host, int port) {
  return look_up(host, port, AI_NUMERICSERV);
}

Result<SocketAddress> parse_address(const std::string& host, int port) {
  const auto addresses = look_up(host, port, AI_NUMERICSERV | AI_NUMERICHOST);
  if (!addresses.ok())
    return Status(StatusCode::invalid_argument, "'" + host + "' is not a numeric address");
  return addresses->front();
}

Result<Socket> listen_on(const SocketAddress& address) {
  Result<Socket> socket = make_socket(address);
  if (!socket.ok()) return socket;
  const int error = try_to_listen(*socket, address);
  if (error == 0) return socket;
  Status failure = system_failure("cannot listen on " + address.to_string(), error);
  if (error == EADDRINUSE && address.port() == 0) return listen_on_own_port(address, failure);
  return failure;
}

Result<Socket> start_connecting(const SocketAddress& address,
                                const std::function<void(const Socket&)>& prepare) {
  Result<Socket> socket = make_socket(address);
  if (!socket.ok()) return socket;
  set_no_delay(*socket);
  if (prepare) prepare(*socket);
  const int done = ::connect(socket->number(), as_sockaddr(address), address.bytes);
  if (done != 0 && errno != EINPROGRESS && errno != EINTR)
    return Status(StatusCode::peer_lost, std::strerror(errno));
  return socket;
}

int connect_error(const Socket& socket) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

Socket accept_from(const Socket& listener, SocketAddress& origin) {
  origin.bytes = sizeof(origin.storage);
  Socket socket(::accept4(listener.number(), reinterpret_cast<sockaddr*>(&origin.storage),
                          &origin.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return socket;
  set_no_delay(socket);
  return socket;
}

Result<SocketAddress> local_address(const Socket& socket) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&address.storage),
                    &address.bytes) != 0)
    return system_failure("getsockname", errno);
  return address;
}

void set_no_delay(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace tutti::transport
