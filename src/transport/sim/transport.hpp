// transport.hpp: one rank's view of a simulated world: the same interface as every other
// transport, so that the code that ships runs in the simulation unchanged.
#pragma once

#include <memory>

#include "transport/sim/world.hpp"
#include "tutti/transport.hpp"

namespace tutti::transport {

// The connections of one rank of `world`. poll() says whether anything was delivered to the rank
// since the last poll(); sleep() returns at once, as only SimWorld::step() makes time pass.
// Requires  0 <= rank < world.options().size; one transport per rank.
// Lifetime  of the world: longer.
// `rank` counts in the group.
std::unique_ptr<Transport> make_sim_transport(SimWorld& world, Rank rank, int group = 0);

// The same, and keeps the world alive.
std::unique_ptr<Transport> make_sim_transport(std::shared_ptr<SimWorld> world, Rank rank);

}  // namespace tutti::transport
