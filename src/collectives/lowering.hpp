// lowering.hpp: maps every message of a rank's program to what its link and buffers can do.
//
// Deterministic and local: a rank looks at its own program and at those of the ranks it talks to.
#pragma once

#include "collectives/lowered.hpp"
#include "tutti/schedule.hpp"

namespace tutti::collectives {

// The program of `rank` in the form that executors run.
// Requires  a verified schedule. Cost: expands the programs of the rank and its peers.
LoweredProgram lower(const Schedule& schedule, Rank rank);

}  // namespace tutti::collectives
