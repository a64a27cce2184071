// unique_id.cc: see unique_id.hpp.
#include "nccl/unique_id.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "nccl/interfaces.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/bytes.hpp"

namespace tutti::nccl {
namespace {

using transport::Socket;
using transport::SocketAddress;

constexpr std::string_view kMagic = "tutti id";
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kAddressBytesMax = 64;

static_assert(UniqueId::kSecretBytes == transport::kNonceBytes);

// A socket bound to that address, which others of this user may bind as well.
Result<Socket> bind_shared(const SocketAddress& address) {
  const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  Socket socket(::socket(address.storage.ss_family, type, 0));
  if (!socket) return transport::system_failure("socket", errno);
  const int on = 1;
  ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0)
    return transport::system_failure("SO_REUSEPORT", errno);
  const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::bind(socket.number(), where, address.bytes) == 0) return socket;
  const int error = errno;
  if (error == EADDRNOTAVAIL)
    return Status(StatusCode::unsupported,
                  fmt::format("{} is another host's address; call ncclGetUniqueId on the host of "
                              "rank 0",
                              address.to_string()));
  return transport::system_failure(address.to_string(), error);
}

// Ports of ids whose rank 0 is still to come, or is another process. The oldest are given up: by
// then rank 0 listens there itself, or never will.
void reserve(Socket socket) {
  constexpr std::size_t kReservedMax = 64;
  static std::mutex mutex;
  static std::deque<Socket> reserved;
  const std::lock_guard lock(mutex);
  reserved.push_back(std::move(socket));
  if (reserved.size() > kReservedMax) reserved.pop_front();
}

}  // namespace

Result<UniqueId> UniqueId::read(const char (&bytes)[kUniqueIdBytes]) {
  const Status wrong(StatusCode::corrupt_data,
                     "this ncclUniqueId was not made by ncclGetUniqueId of this library; all ranks "
                     "must load the same libnccl.so.2");
  transport::ByteReader reader(std::string_view(bytes, kUniqueIdBytes));
  const bool ours =
      reader.raw(kMagic.size()) == kMagic && reader.number<std::uint8_t>() == kVersion;
  if (!ours) return wrong;
  UniqueId id;
  id.port = reader.number<std::uint16_t>();
  id.address = reader.text(kAddressBytesMax);
  id.secret = reader.raw(kSecretBytes);
  if (reader.failed() || id.port == 0 || !transport::parse_address(id.address, id.port).ok())
    return wrong;
  return id;
}

void UniqueId::write(char (&bytes)[kUniqueIdBytes]) const {
  const std::string text = transport::ByteWriter()
                               .raw(kMagic)
                               .number(kVersion)
                               .number(static_cast<std::uint16_t>(port))
                               .text(std::string_view(address).substr(0, kAddressBytesMax))
                               .raw(secret)
                               .bytes();
  static_assert(kMagic.size() + 1 + 2 + 4 + kAddressBytesMax + kSecretBytes <= kUniqueIdBytes);
  std::memset(bytes, 0, kUniqueIdBytes);
  std::memcpy(bytes, text.data(), std::min(text.size(), kUniqueIdBytes));
}

Result<UniqueId> make_unique_id(const std::string& interfaces) {
  const auto all = list_interfaces();
  TUTTI_TRY(all);
  const auto chosen = choose_interface(*all, interfaces);
  TUTTI_TRY(chosen);
  const auto address = transport::parse_address(chosen->address, 0);
  TUTTI_TRY(address);
  Result<Socket> socket = bind_shared(*address);
  TUTTI_TRY(socket);
  const auto bound = transport::local_address(*socket);
  TUTTI_TRY(bound);
  reserve(*std::move(socket));
  UniqueId id;
  id.address = chosen->address;
  id.port = bound->port();
  id.secret = transport::random_nonce();
  return id;
}

Result<Socket> listen_for(const UniqueId& id) {
  const auto address = transport::parse_address(id.address, id.port);
  TUTTI_TRY(address);
  Result<Socket> socket = bind_shared(*address);
  TUTTI_TRY(socket);
  if (::listen(socket->number(), SOMAXCONN) != 0)
    return transport::system_failure(fmt::format("rank 0 listens at {}", address->to_string()),
                                     errno);
  return socket;
}

}  // namespace tutti::nccl
