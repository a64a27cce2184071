// lowering.hpp: maps every message of a rank's program to what its link and buffers can do.
//
// Deterministic and local: a rank looks at its own program and at those of the ranks it talks to.
#pragma once

#include "collectives/lowered.hpp"
#include "tutti/schedule.hpp"

namespace tutti::collectives {

// How a copy travels that the schedule says its sender should store.
enum class Copies : std::uint8_t {
  pushed,  // so, where that can be
  pulled,  // the receiver loads it, as it does all others
};

// The program of `rank` in the form that executors run.
// Requires  a verified schedule. Cost: expands the programs of the rank and its peers.
LoweredProgram lower(const Schedule& schedule, Rank rank, Copies copies = Copies::pushed);

// Every rank's, expanding each program once: for verifiers and simulated worlds.
std::vector<LoweredProgram> lower_all(const Schedule& schedule, Copies copies = Copies::pushed);

// The same program with the sources of every reduction in the order of ranks: memory counts as its
// owner, a message as its sender. For schedules whose expression has been proved
// (verifier_expression.hpp).
LoweredProgram in_rank_order(LoweredProgram program);

// The program of a rank that sends its input to `to` and receives its output from `from`; either
// may be -1 (nobody). Sending to oneself is receiving from oneself.
LoweredProgram lower_point_to_point(int ranks, Rank rank, Rank to, Rank from);

}  // namespace tutti::collectives
