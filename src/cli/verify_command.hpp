// verify_command.hpp: `tutti verify`, which proves the schedules of the table of algorithms, or one
// from a file, and tests the proof itself with damaged schedules.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

// Adds the command to `app`. `exit_code` must outlive the parsing: 0 when all is proved.
void add_verify_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
