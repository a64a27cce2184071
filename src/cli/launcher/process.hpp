// process.hpp: starting one rank's process, and seeing it end.
//
// A rank lives in a process group of its own, so that signals reach what it starts as well, and is
// killed by the kernel when the launcher dies, whatever kills the launcher. Decides nothing.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "cli/launcher/job.hpp"
#include "tutti/status.hpp"

namespace tutti::cli::launcher {

using base::Descriptor;

struct ProcessSpec {
  std::string path;                      // of the program; already found
  std::vector<std::string> arguments;    // the first is the program's name
  std::vector<std::string> environment;  // NAME=value
  std::vector<int> cpus;                 // hardware threads to run on; empty: as the launcher
  bool reads_stdin = false;              // else it reads nothing
  int inherited = -1;                    // a descriptor that stays open, under the same number
};

struct Process {
  pid_t id = -1;
  Descriptor output;  // the read ends of its stdout and stderr; do not block
  Descriptor errors;
};

// Starts a process. Errors: system_error, naming the call that failed in the new process.
Result<Process> start(const ProcessSpec& spec);

// Whether take_ending() has something to tell.
bool has_ended(pid_t process);

// How the process ended, if it has. Kills what is left of its group, and reaps it.
std::optional<Ending> take_ending(pid_t process);

// Whether nothing of the process will run again: it has ended, or is about to have. Its connections
// are closed some time before take_ending() has anything to tell.
bool is_ending(pid_t process);

// The file to run for `program`: as it stands if it holds a slash, else from the folders of `path`
// (PATH's text), else beside our own executable. Errors: invalid_argument, saying where was looked.
Result<std::string> find_program(const std::string& program, const std::string& path,
                                 const std::string& own_folder);

// The folder that holds the running executable.
std::string own_folder();

}  // namespace tutti::cli::launcher
