// main.cc: the program `tutti`. This file is its table of contents: one line for each command.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "cli/chaos_command.hpp"
#include "cli/checkpoint_command.hpp"
#include "cli/doctor_command.hpp"
#include "cli/env_command.hpp"
#include "cli/plan_command.hpp"
#include "cli/run_command.hpp"
#include "cli/sample_command.hpp"
#include "cli/topo_command.hpp"
#include "cli/train_command.hpp"
#include "cli/tune_command.hpp"
#include "cli/verify_command.hpp"

namespace {

constexpr int kUsageError = 2;

void add_version_command(CLI::App& app) {
  app.add_subcommand("version", "Print the version")->callback([] {
    fmt::print("tutti {}\n", TUTTI_VERSION);
  });
}

// What is wrong with the command's name; empty when nothing is.
std::string check_command(const CLI::App& app, const std::string& name) {
  std::vector<std::string_view> known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(command->get_name());
  if (name.starts_with("-") || std::find(known.begin(), known.end(), name) != known.end())
    return {};
  const auto near = tutti::base::nearest(name, known);
  return fmt::format("there is no command {}; {}", name,
                     near ? fmt::format("did you mean {}?", *near)
                          : fmt::format("there are {}", tutti::base::join(known, ", ")));
}

int parse_and_run(CLI::App& app, std::vector<std::string> arguments, const int& exit_code) {
  if (arguments.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kUsageError;
  }
  if (const std::string wrong = check_command(app, arguments.front()); !wrong.empty()) {
    fmt::print(stderr, "tutti: {}\n", wrong);
    return kUsageError;
  }
  // CLI11 takes its arguments from the back.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return exit_code;
}

}  // namespace

int main(int count, char** values) {
  CLI::App app{"Tutti: collective communication, planned and proved.", "tutti"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "tutti " TUTTI_VERSION);
  app.footer("`tutti COMMAND --help` tells more about each.");

  int exit_code = 0;
  const auto arguments = tutti::cli::cut_run_arguments({values + 1, values + count});
  tutti::cli::add_run_command(app, arguments, exit_code);
  tutti::cli::add_topo_command(app, exit_code);
  tutti::cli::add_plan_command(app, exit_code);
  tutti::cli::add_tune_command(app, exit_code);
  tutti::cli::add_verify_command(app, exit_code);
  tutti::cli::add_chaos_command(app, exit_code);
  tutti::cli::add_train_command(app, exit_code);
  tutti::cli::add_checkpoint_command(app, exit_code);
  tutti::cli::add_sample_command(app, exit_code);
  tutti::cli::add_doctor_command(app, exit_code);
  tutti::cli::add_env_command(app, exit_code);
  add_version_command(app);
  return parse_and_run(app, arguments.for_us, exit_code);
}
