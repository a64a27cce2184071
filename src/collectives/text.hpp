// text.hpp: schedules as text that people can read, edit and keep in files:
//
//   tutti schedule 1
//   algorithm ring
//   collective all_gather
//   ranks 4
//   chunks 1
//
//   program for 0-3
//     copy input[0] -> output[(r)%4], to (r+1)%4
//     repeat 2
//       copy from (r+3)%4 -> output[(r-i+3)%4], to (r+1)%4
//     end
//     copy from (r+3)%4 -> output[(r+1)%4]
//
// r is the rank, i the index of the loop around. A range of chunks is `input[0 : 4]` (four of them,
// from 0 on). `finish` is a reduce that finishes; `to_queue` is a message that must be queued,
// `to_push` one that its sender stores. What stands behind # is a comment.
//
// Knows the grammar; whether a schedule is right is the verifier's question.
#pragma once

#include <string>
#include <string_view>

#include "collectives/lowered.hpp"

namespace tutti::collectives {

// Requires  a schedule as builders make them: messages have no buffer, memory is never queued.
// Ensures   parse_schedule gives back an equal one.
std::string to_text(const Schedule& schedule);
std::string to_text(const AffineIndex& index);

// Errors: corrupt_data that names the line. Text may come from anywhere: all sizes are bounded.
// Ensures  indices can be evaluated for every rank and loop index; nothing else is checked.
Result<Schedule> parse_schedule(std::string_view text);

// To read only: steps with their numbers and dependencies.
std::string to_text(const ExpandedProgram& program);
std::string to_text(const LoweredProgram& program);

}  // namespace tutti::collectives
