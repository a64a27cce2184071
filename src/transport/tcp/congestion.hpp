// congestion.hpp: who decides how fast the system sends on a connection.
//
// A congestion control that paces (BBR) lets bytes go by the clock, at the speed that it has seen
// them arrive at before. Collectives send in bursts, and most of what it sees is their pauses and
// the peer's computing: on two cores the second megabyte took twice as long as without. Pacing
// is worth its price where a loss takes long to mend, which is not so next door.
//
// Knows the system's calls only.
#pragma once

#include <string>

namespace tutti::transport::tcp {

// The control of a connection, such as "cubic"; empty when it has none.
std::string congestion_control(int socket);

// True when the first packets of a connection went there and back within a millisecond.
bool is_near(int socket);

// Gives a connection that is near and paced the control that is everywhere, and lets all others be.
// Where the system does not allow that, everything stays as it was.
void pace_only_far_ways(int socket);

}  // namespace tutti::transport::tcp
