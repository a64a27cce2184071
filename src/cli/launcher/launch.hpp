// launch.hpp: `tutti run` after its options are read: starts the ranks of a job on this host and
// stays with them until the last has ended.
//
// Joins the pieces of this folder to the operating system: Job decides, process starts, output
// writes. Knows nothing of collectives; any program can be started.
#pragma once

#include <string>
#include <vector>

#include "base/environment.hpp"
#include "cli/launcher/job.hpp"
#include "cli/launcher/placement.hpp"
#include "tutti/status.hpp"

namespace tutti::cli::launcher {

// Which lines get "[rank] " before them.
enum class Prefix {
  automatic,  // all but rank 0's stdout, so that a table that rank 0 prints stays a table
  all,
  none,
};

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;  // the program and its arguments
  Binding binding = Binding::automatic;
  Prefix prefix = Prefix::automatic;
  std::string transport;  // sets TUTTI_TRANSPORT; empty: leaves it
  int master_port = 0;    // 0: a free one
  JobLimits limits;
};

// Runs the job and returns its exit code.
//
// Blocking  until every rank has ended.
// Errors    invalid_argument, system_error: the job could not be started; no rank is left running.
Result<int> launch(const LaunchOptions& options, const base::Environment& environment);

}  // namespace tutti::cli::launcher
