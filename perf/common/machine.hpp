// machine.hpp: what a rank says of where it runs, for the device lines.
#pragma once

#include <cstddef>
#include <vector>

#include "perf/common/table.hpp"
#include "tutti/communicator.hpp"

namespace tutti::perf {

// This thread's process, host and core, as they are now.
Device this_device(Rank rank);

// Memory that this host can still give, in bytes; 0 when it does not say.
std::size_t available_memory();

struct Neighbourhood {
  std::vector<Device> devices;       // by rank
  std::size_t max_buffer_bytes = 0;  // what each of a rank's buffers may have on the fullest host
};

// Tells all ranks of each other. Every rank calls it.
Result<Neighbourhood> meet(Communicator& communicator);

}  // namespace tutti::perf
