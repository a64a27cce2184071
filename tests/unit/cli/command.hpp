// command.hpp: runs one command of `tutti` inside a test, as if it had been typed.
#pragma once

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace tutti::cli::testing {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// `add` registers the command; the first argument is its name. Parse errors of CLI11 count as exit
// code 2.
template <typename Add>
Outcome run_command(Add add, std::vector<std::string> arguments) {
  CLI::App app{"tutti"};
  Outcome outcome;
  add(app, outcome.exit_code);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError&) {
    outcome.exit_code = 2;
  }
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

}  // namespace tutti::cli::testing
