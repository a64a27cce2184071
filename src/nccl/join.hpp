// join.hpp: how ranks that have an id become a communicator.
#pragma once

#include <functional>

#include "nccl/unique_id.hpp"
#include "tutti/communicator.hpp"

namespace tutti::nccl {

struct JoinRequest {
  UniqueId id;
  Rank rank = 0;
  int size = 1;
  // Asked now and then while others are awaited: an error ends it. May be empty.
  std::function<Status()> bad_news;
};

// Meets the other ranks. Where all of them are threads of this process they talk through memory,
// unless the settings name another transport.
// Blocking  until all ranks have come, or the deadline for set-up (TUTTI_SETUP_TIMEOUT_MS).
// Errors    those of joining a world; naming the ranks that did not come.
Result<Communicator> join(const JoinRequest& request);

// All ranks of a new communicator, in this process.
Result<std::vector<Communicator>> join_all(int size);

}  // namespace tutti::nccl
