// env_command.hpp: `tutti env`, which lists the settings that the environment can give.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/environment.hpp"

namespace tutti::cli {

// Adds the command to `app`. `exit_code` must outlive the parsing.
void add_env_command(CLI::App& app, int& exit_code);

// The list: every setting with its value or default, what is allowed and what it does.
std::string describe_settings(const base::Environment& environment);

}  // namespace tutti::cli
