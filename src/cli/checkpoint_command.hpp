// checkpoint_command.hpp: `tutti checkpoint`: looks into, compares and converts what `tutti train`
// has saved.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

void add_checkpoint_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
