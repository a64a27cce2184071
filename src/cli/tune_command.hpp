// tune_command.hpp: `tutti tune`: measures this machine and writes the table that the planner
// reads.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

void add_tune_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
