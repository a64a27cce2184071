// verifier_form.hpp: what can be said of programs without running them: each step makes sense, and
// the two ends of every message agree about it.
//
// Both forms of a schedule are judged as lowered programs; the two-sided form is one in which no
// message has a direct form. The conversion here is the verifier's own.
#pragma once

#include <span>

#include "collectives/verifier.hpp"

namespace tutti::collectives {

// A two-sided program as a lowered one. Any numbers are carried over as they are, also wrong ones.
LoweredProgram as_lowered(const ScheduleShape& shape, Rank rank, const ExpandedProgram& program);

// Faults: malformed, unmatched.
Verdict check_form(std::span<const LoweredProgram> programs);

// How reasons name things: "rank 2 step 5 (reduce)", "input[3..4]".
std::string describe_step(Rank rank, int step, StepKind kind);
std::string describe_chunks(Buffer buffer, int first, int count);

}  // namespace tutti::collectives
