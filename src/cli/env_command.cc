// env_command.cc: prints the table of settings (base/config.hpp) with the values in force.
#include "cli/env_command.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "base/config.hpp"

namespace tutti::cli {
namespace {

std::string shown_value(const base::ConfigVariable& variable, std::string_view value) {
  if (value.empty())
    return fmt::format("not set, default {}",
                       variable.default_text.empty() ? "none" : variable.default_text);
  return fmt::format("set to {}", variable.secret ? "a value that is not shown" : value);
}

// Prints also when the settings are wrong: then above all people want to see them.
int print_settings() {
  const base::Environment environment = base::capture_environment();
  fmt::print("{}", describe_settings(environment));
  const auto world = base::world_from_environment(environment);
  if (world.ok())
    fmt::print("\nThis process is rank {} of {} ({}).\n", world->rank, world->world_size,
               world->source);
  Status status = base::parse_config(environment).status();
  if (status.ok()) status = world.status();
  if (status.ok()) return 0;
  std::fflush(stdout);
  fmt::print(stderr, "\ntutti env: {}\n", status.message());
  return 1;
}

}  // namespace

std::string describe_settings(const base::Environment& environment) {
  std::string text;
  for (const base::ConfigVariable& variable : base::config_variables()) {
    text += fmt::format("{} = {}  ({})\n    {}\n", variable.name, variable.allowed,
                        shown_value(variable, base::value_of(environment, variable.name)),
                        variable.help);
  }
  return text;
}

void add_env_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("env", "List the settings (TUTTI_* variables)");
  command->callback([&exit_code] { exit_code = print_settings(); });
}

}  // namespace tutti::cli
