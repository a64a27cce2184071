// sample_command.hpp: `tutti sample`: writes text with a model.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

void add_sample_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
