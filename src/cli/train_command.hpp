// train_command.hpp: `tutti train`: trains a model, proves a layout equal to one process, or tells
// what a run would take.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

void add_train_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
