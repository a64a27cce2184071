// congestion.hpp: who decides how fast the system sends on a connection.
//
// A congestion control that paces (BBR) lets bytes go by the clock, at the speed that it has seen
// them arrive at before. Collectives send in bursts, and most of what it sees is their pauses and
// the peer's computing: between two cores, 1 MiB took up to twice as long as without. Pacing is
// worth its price where a loss takes long to mend, which is not so next door.
//
// What paces arms a timer of the system with each packet, and goes on so when another control takes
// over. So connections begin without, and those that turn out to go far get it back.
//
// Knows the system's calls only.
#pragma once

#include <string>

#include "transport/bootstrap/socket.hpp"

namespace tutti::transport::tcp {

// The control of a connection, such as "cubic"; empty when it has none.
std::string congestion_control(int socket);

// True when the first packets of a connection went there and back within a millisecond.
bool is_near(int socket);

// Of a socket that is not connected yet, or of one that listens, for all that it will accept: if
// its control paces, the one that every system has takes its place. Where the system does not allow
// that, nothing changes.
void begin_unpaced(const Socket& socket);

// Gives a connection that is not near the system's control, if that paces.
void pace_if_far(const Socket& socket);

// As start_connecting(), unpaced.
Result<Socket> start_connecting_unpaced(const SocketAddress& address);

}  // namespace tutti::transport::tcp
