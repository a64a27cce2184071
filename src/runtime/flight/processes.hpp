// processes.hpp: the Tutti processes of this host that this user may look into, found through
// /proc, with what their flight recorders say.
//
// Reads only; asks nothing of the processes, so that it works while they are stopped or hang.
// Cost  some milliseconds: for slow paths and `tutti doctor`.
#pragma once

#include <string>
#include <vector>

#include "runtime/flight/reader.hpp"

namespace tutti::runtime::flight {

struct Process {
  long pid = 0;
  char state = '?';      // as /proc/PID/stat has it: R, S, D, T, t, Z, ...
  std::string command;   // its name
  ProcessView recorder;  // what it says of itself

  // By a signal or by a debugger.
  bool stopped() const { return state == 'T' || state == 't'; }
};

// All that can be read. Those that cannot are left out.
std::vector<Process> find_processes();

// One. Errors  invalid_argument: there is no such process, or it has no recorder that this user may
// read, with the reasons that there can be.
Result<Process> find_process(long pid);

}  // namespace tutti::runtime::flight
