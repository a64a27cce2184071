// doctor_command.hpp: `tutti doctor`: what the Tutti processes of this host are doing, whom they
// wait for and whose fault it is, and whether this machine has what Tutti needs.
//
// Works on processes that are stopped or hang: it reads their flight recorders and asks them
// nothing.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti::cli {

void add_doctor_command(CLI::App& app, int& exit_code);

}  // namespace tutti::cli
