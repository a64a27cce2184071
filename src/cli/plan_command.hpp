// plan_command.hpp: `tutti plan`: how a collective would be done on a machine, and why.
//
// Knows options and output; the planner knows the rest.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

// `exit_code` is set when the command runs: 0, or 2 when the question makes no sense.
void add_plan_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
