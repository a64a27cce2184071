// run_command.hpp: `tutti run`, which starts the ranks of a job on this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tutti::cli {

// What stands before and after the first "--" of `tutti run ... -- PROGRAM ARGUMENTS`. CLI11 would
// read the program's options as ours, so the command line is cut before CLI11 sees it.
struct RunArguments {
  std::vector<std::string> for_us;  // all of it where there is no "--", or for other commands
  std::vector<std::string> after_dashes;
  bool has_dashes = false;
};

RunArguments cut_run_arguments(std::vector<std::string> arguments);

// Adds the command to `app`. `arguments` and `exit_code` must outlive the parsing.
void add_run_command(CLI::App& app, const RunArguments& arguments, int& exit_code);

}  // namespace tutti::cli
