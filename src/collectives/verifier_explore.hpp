// verifier_explore.hpp: the same machine as the verifier's, but played move by move, in every order
// that there is. It believes in no theorem: it keeps queues, memory and phases, tries each possible
// next move in each reachable state, and looks for states in which two moves that may happen at
// once touch the same memory. Only for small worlds; there it shows that the verifier's one run was
// enough, and it is the judge of mutants that the verifier accepts.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collectives/verifier.hpp"

namespace tutti::collectives {

struct ExploreOptions {
  std::int64_t states_max = 200'000;
  bool out_of_place = true;
  bool in_place = true;
};

struct Exploration {
  Fault fault = Fault::none;
  std::string reason;
  std::int64_t states = 0;
  bool exhausted = false;  // every reachable state was seen, or a fault found

  bool proved() const { return exhausted && fault == Fault::none; }
};

// Explores the tightest machine (least room, all waits that an executor may add: finds deadlocks)
// and the loosest one (unlimited room, no such waits: finds races).
// Requires  as verify_lowered; programs of malformed or unmatched form are reported as such.
Exploration explore_lowered(std::span<const LoweredProgram> programs,
                            const Addressability& addressable, const ExploreOptions& options = {});
Exploration explore(const ScheduleShape& shape, std::span<const ExpandedProgram> programs,
                    const ExploreOptions& options = {});

}  // namespace tutti::collectives
