// contract.hpp: what every rank must hold before and after a collective, chunk by chunk. It is the
// specification that schedules are proved against, and it is written down here from the meaning of
// the collectives alone: also the geometry is stated a second time instead of asking the code that
// builds schedules.
//
// Knows nothing of steps, messages or how a collective is done.
#pragma once

#include <compare>
#include <vector>

#include "tutti/schedule.hpp"

namespace tutti::collectives {

// What one rank contributes: the content of its input chunk at the start of the call.
struct Atom {
  Rank rank = 0;
  int chunk = 0;

  friend auto operator<=>(const Atom&, const Atom&) = default;
};

// What an output chunk must hold at the end.
struct Requirement {
  enum class Rule {
    anything,  // it is not part of the result
    exactly,   // these atoms, each of them once
    at_least,  // these atoms, each of them once or more
  };
  Rule rule = Rule::anything;
  std::vector<Atom> atoms;  // ascending
  // A reduction passes one `finish`, which sees all contributions; nothing else passes any.
  bool finished = false;
};

// The collective among so many ranks makes sense: counts are positive, the root exists.
// Errors: invalid_argument that names the value.
Status check_shape(const ScheduleShape& shape);

// Chunks of a rank's buffer.
int contract_chunks(const ScheduleShape& shape, Buffer buffer);

// Whether a caller may give the same memory as input and output.
bool may_run_in_place(Collective collective);

// In place: the output chunk that is the same memory as `input_chunk` of `rank`, or -1.
int contract_alias(const ScheduleShape& shape, Rank rank, int input_chunk);

// Whether the input of `rank` has any content: in a broadcast only the root's has.
bool has_content(const ScheduleShape& shape, Rank rank);

Requirement required_output(const ScheduleShape& shape, Rank rank, int output_chunk);

}  // namespace tutti::collectives
