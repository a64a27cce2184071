// chaos_command.hpp: `tutti chaos`, which runs the production executor in simulated worlds.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

// Adds the command to `app`. `exit_code` must outlive the parsing: 0 when every world went right.
void add_chaos_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
