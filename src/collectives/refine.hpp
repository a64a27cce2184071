// refine.hpp: the same schedule on finer chunks. Executors do both of these when data is long; a
// schedule must be right for every number of chunks.
//
// Knows the geometry of blocks only.
#pragma once

#include <optional>

#include "tutti/schedule.hpp"

namespace tutti::collectives {

// Every chunk becomes `factor` chunks that travel together. Requires  factor >= 1; no barrier.
Schedule widened(const Schedule& schedule, int factor);

// Every chunk becomes `factor` chunks, and the whole schedule is done for the first of each, then
// for the second, ...: what an executor does with the slices of a channel. Nothing when the
// schedule moves ranges of chunks: every second chunk of a range is no range. Requires  factor >=
// 1; no barrier.
std::optional<Schedule> sliced(const Schedule& schedule, int factor);

}  // namespace tutti::collectives
