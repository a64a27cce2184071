// encode_order.hpp: an order of all that the ranks of a world do in which everything that something
// waits for, in any mixture of ways, comes before it.
//
// A rank that takes its part of such an order one after the other never waits for ever: of all that
// has not been done, what comes first in the order has nothing to wait for.
//
// Knows nothing of how instructions are written down.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/lowered.hpp"

namespace tutti::runtime::gpu {

// What a rank does at one time.
struct Event {
  std::int32_t step = 0;
  bool grants = false;  // the step's memory is granted; else the step is carried out

  friend bool operator==(const Event&, const Event&) = default;
};

// The events of every rank.
// Errors  unsupported: some events wait for each other, if messages travel in a certain way.
Result<std::vector<std::vector<Event>>> order_events(
    std::span<const collectives::LoweredProgram> programs);

}  // namespace tutti::runtime::gpu
