// topo_command.hpp: `tutti topo`, which shows a topology or turns it into text or JSON.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

// Adds the subcommand to `app`; running it sets `exit_code` (0, or 1 after an error message).
// Lifetime  `exit_code` outlives `app`.
void add_topo_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
