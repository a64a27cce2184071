// unique_id.hpp: the 128 bytes by which the ranks of a new communicator find each other, and prove
// that they belong together.
//
// An id names an address at which rank 0 will listen, and carries a secret that nobody else knows:
// whoever has the id may join. Its maker reserves the port without listening, so that rank 0 may be
// any process of the maker's host, and the maker needs no thread; ranks that come before rank 0 are
// refused by the system and try again.
//
// Knows sockets. Does not know communicators.
#pragma once

#include <cstddef>
#include <string>

#include "transport/bootstrap/socket.hpp"
#include "tutti/status.hpp"

namespace tutti::nccl {

inline constexpr std::size_t kUniqueIdBytes = 128;

struct UniqueId {
  static constexpr std::size_t kSecretBytes = 32;

  std::string address;  // numeric
  int port = 0;
  std::string secret;  // kSecretBytes

  // Errors  corrupt_data: these bytes are no id of this library.
  static Result<UniqueId> read(const char (&bytes)[kUniqueIdBytes]);
  void write(char (&bytes)[kUniqueIdBytes]) const;
};

// On the interface that `interfaces` chooses (as NCCL_SOCKET_IFNAME is written, see
// interfaces.hpp).
// Errors  system_error; invalid_argument: there is no such interface.
// Threading any thread.
Result<UniqueId> make_unique_id(const std::string& interfaces);

// The socket at which rank 0 listens for the others.
// Errors  unsupported: the address is another host's; system_error: it was taken meanwhile.
Result<transport::Socket> listen_for(const UniqueId& id);

}  // namespace tutti::nccl
