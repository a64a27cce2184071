// run.hpp: a perf tool from its command line to its exit status.
#pragma once

#include "perf/common/tool.hpp"

namespace tutti::perf {

// Exit status: 0 all right; 1 wrong values, too slow (NCCL_TESTS_MIN_BW) or a failed call; 2 a
// command line that cannot be.
int run_program(const Tool& tool, int argc, char** argv);

}  // namespace tutti::perf
