// access.hpp: the way between a Communicator and what stands behind it, for those parts of the
// library that are its users and know more than users do.
#pragma once

#include <memory>
#include <utility>

#include "tutti/communicator.hpp"

namespace tutti::runtime {

class CommunicatorAccess {
 public:
  static Communicator make(std::shared_ptr<CommunicatorState> state) {
    return Communicator(std::move(state));
  }
  // Requires  a connected communicator.
  static CommunicatorState& state(Communicator& communicator) { return *communicator.state_; }
};

}  // namespace tutti::runtime
