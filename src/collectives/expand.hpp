// expand.hpp: from the compressed form of a Schedule to plain steps, and what the order of those
// steps means as explicit dependencies.
//
// Knows the meaning of steps; does not know what a collective is for.
#pragma once

#include <vector>

#include "tutti/schedule.hpp"

namespace tutti::collectives {

// The steps of `rank` with loops unrolled and indices evaluated; `depends` is left empty.
ExpandedProgram unroll(const Schedule& schedule, Rank rank);

// Fills `depends`: each step depends on the latest earlier steps whose chunks it reads after a
// write, or writes after a read or a write. input and output are taken to be the same memory where
// the collective may run in place, so that one program serves both. Order of messages on a stream
// is no dependency: the streams keep it.
void infer_dependencies(const ScheduleShape& shape, Rank rank, ExpandedProgram& program);

// unroll and infer_dependencies.
ExpandedProgram expand(const Schedule& schedule, Rank rank);

}  // namespace tutti::collectives
