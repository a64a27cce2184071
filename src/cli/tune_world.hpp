// tune_world.hpp: ranks on this machine for `tutti tune`: threads of one process for the memory
// transport, bound processes for the others, as `tutti run` starts them. They use Tutti's defaults,
// whatever the environment says, and nothing that was measured before.
//
// Knows nothing of what is measured.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "collectives/tuning.hpp"
#include "runtime/communicator_state.hpp"
#include "tutti/status.hpp"

namespace tutti::cli {

// The place that `ranks` ranks of this process's cores make.
collectives::TuningKey tune_key(const std::string& transport, int ranks);

// Whether ranks of that transport see memory in which they can combine.
inline bool shares_memory(const std::string& transport) {
  return transport == "memory" || transport == "shm";
}

// What each rank does with the parts of its communicator; it ends with a barrier and close(),
// because others may still be connecting when the first is ready. Rank 0's text is the result.
using TuneBody = std::function<Result<std::string>(runtime::CommunicatorParts parts)>;

// Requires  a process without threads.
// Errors    timeout, and whatever the body of any rank or its process failed with.
Result<std::string> in_tune_world(const std::string& transport, int ranks,
                                  std::chrono::milliseconds limit, const TuneBody& body);

}  // namespace tutti::cli
