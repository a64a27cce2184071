// local_socket.hpp: stream sockets between processes of one host, under names that leave nothing
// behind in the file system (Linux' abstract namespace: one per network namespace).
//
// Both sides must belong to the same user. Knows no protocol; non-blocking, close-on-exec.
#pragma once

#include <string>

#include "transport/bootstrap/socket.hpp"

namespace tutti::transport {

inline constexpr std::size_t kLocalNameBytesMax = 100;

// Errors  system_error: the name is taken, or there is no such namespace here.
Result<Socket> listen_at_name(const std::string& name);

// Errors  peer_lost when nobody listens there, or another user does, or too many wait.
Result<Socket> connect_to_name(const std::string& name);

// The next waiting connection and where it came from; an empty socket when there is none.
Socket accept_local(const Socket& listener, std::string& origin);

}  // namespace tutti::transport
