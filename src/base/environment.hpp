// environment.hpp: what the process was told when it started: a snapshot of the environment
// variables, and who this process is in the world according to the launcher that started it.
//
// Reads the launchers that people have: torchrun and `tutti run` (RANK, WORLD_SIZE, ...), Open MPI,
// MPICH and Intel MPI, Slurm, and others that speak PMI. Does not know what TUTTI_* variables mean
// (config.hpp), and opens no connection.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::base {

// Names and values. Everything below reads a snapshot, so that tests need not change the process's
// own environment and threads that do cannot hurt us.
using Environment = std::map<std::string, std::string, std::less<>>;

Environment capture_environment();

// The value, or nothing where the variable is missing or empty.
std::string_view value_of(const Environment& environment, std::string_view name);

// This process's place among the ranks, and where the ranks meet.
struct WorldEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;  // the number among the ranks on this host; -1: the launcher does not say
  int local_size = -1;  // how many ranks this host has; -1: the launcher does not say
  std::string master_address;  // where rank 0 listens; empty only where world_size is 1
  int master_port = 0;         // 0 only where world_size is 1
  std::string source;          // who said so, for errors and logs: "Open MPI", "no launcher"

  friend bool operator==(const WorldEnvironment&, const WorldEnvironment&) = default;
};

// Finds out who this process is. Without any launcher's variables: a world of one rank.
//
// MASTER_ADDR and MASTER_PORT say where to meet, whatever the launcher. Where they are missing and
// the job runs on one host, the address is 127.0.0.1 and the port follows from the job's identity:
// PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid (Open MPI), SLURM_JOB_ID and SLURM_STEP_ID (Slurm,
// which also names the first host of a job on many), or the process that `launcher_process`
// returns (MPICH sets no variable that names the job).
//
// Errors  invalid_argument, naming the variable: malformed, missing or contradictory values, and
//         a job on several hosts that does not say where to meet.
Result<WorldEnvironment> world_from_environment(const Environment& environment,
                                                const std::function<long()>& launcher_process);

// The same, with the process tree of /proc for launchers that name their job in no other way.
Result<WorldEnvironment> world_from_environment(const Environment& environment);

// The process number of MPICH's per-host daemon above this process, or 0 where there is none.
long find_launcher_process();

}  // namespace tutti::base
