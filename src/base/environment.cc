// environment.cc: one table of launchers and the rules that turn their variables into a
// WorldEnvironment; see environment.hpp.
#include "base/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>

#include "base/text.hpp"
#include "base/try.hpp"

namespace tutti::base {
namespace {

// How one family of launchers tells a process who it is. Where a field has two names, the first
// that is set counts.
struct Launcher {
  std::string_view name;
  std::array<std::string_view, 2> recognized_by;  // any of them set: this launcher it is
  std::string_view rank;
  std::array<std::string_view, 2> size;
  std::string_view local_rank;
  std::string_view local_size;
  std::array<std::string_view, 2> job;  // what tells this job from others on the host
  bool job_needs_all;                   // the identity is all of `job` together
};

// The first that is recognized counts. The order matters: a Slurm step may start MPICH's daemons,
// whose ranks then see both, and Slurm may set PMI's names beside its own.
constexpr Launcher kLaunchers[] = {
    {"RANK and WORLD_SIZE",
     {"RANK", "WORLD_SIZE"},
     "RANK",
     {"WORLD_SIZE"},
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {},
     false},
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK"},
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     false},
    {"MPICH",
     {"MPI_LOCALRANKID"},
     "PMI_RANK",
     {"PMI_SIZE"},
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     {},
     false},
    {"Slurm",
     {"SLURM_STEP_ID"},
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     "",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     true},
    {"PMI",
     {"PMI_RANK"},
     "PMI_RANK",
     {"PMI_SIZE"},
     "PMI_LOCAL_RANK",
     "PMI_LOCAL_SIZE",
     {"PALS_APID"},
     false},
};

constexpr int kMaxInt = std::numeric_limits<int>::max();

Status invalid(std::string text) { return Status(StatusCode::invalid_argument, std::move(text)); }

// Slurm counts the script of a batch job, and a login shell, as steps with numbers near 2^32; a
// program that they start directly is alone, however many tasks the job has.
bool is_real_step(const Environment& environment) {
  const auto step = parse_integer(value_of(environment, "SLURM_STEP_ID"), 0, kMaxInt);
  return step.ok() && !value_of(environment, "SLURM_PROCID").empty();
}

const Launcher* recognize(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.name == "Slurm" && !is_real_step(environment)) continue;
    for (const std::string_view name : launcher.recognized_by)
      if (!name.empty() && !value_of(environment, name).empty()) return &launcher;
  }
  return nullptr;
}

// Reads a number that must be there.
Result<int> required(const Environment& environment, const Launcher& launcher,
                     std::string_view name, int lowest, int highest) {
  const std::string_view text = value_of(environment, name);
  if (text.empty())
    return invalid(fmt::format("{} is not set, but {} is needed beside the other variables of {}",
                               name, name, launcher.name));
  const auto value = parse_integer(text, lowest, highest);
  if (!value.ok()) return value.status().with_context(name);
  return static_cast<int>(*value);
}

// Reads a number that may be missing (-1).
Result<int> optional(const Environment& environment, std::string_view name, int lowest,
                     int highest) {
  const std::string_view text = value_of(environment, name);
  if (text.empty()) return -1;
  const auto value = parse_integer(text, lowest, highest);
  if (!value.ok()) return value.status().with_context(name);
  return static_cast<int>(*value);
}

std::string_view first_set(const Environment& environment,
                           const std::array<std::string_view, 2>& names) {
  for (const std::string_view name : names)
    if (!name.empty() && !value_of(environment, name).empty()) return name;
  return names.front();
}

// Slurm writes how many tasks each host has as "4(x2),3": 4, 4 and 3. -1 where that is not given.
int slurm_local_size(const Environment& environment) {
  const auto host = parse_integer(value_of(environment, "SLURM_NODEID"), 0, kMaxInt);
  if (!host.ok()) return -1;
  std::int64_t hosts_before = 0;
  for (const std::string_view piece :
       split(value_of(environment, "SLURM_STEP_TASKS_PER_NODE"), ',')) {
    const std::size_t open = piece.find("(x");
    const auto tasks = parse_integer(piece.substr(0, open), 1, kMaxInt);
    std::int64_t hosts = 1;
    if (open != std::string_view::npos) {
      const auto repeat =
          parse_integer(piece.substr(open + 2, piece.size() - open - 3), 1, kMaxInt);
      if (!repeat.ok()) return -1;
      hosts = *repeat;
    }
    if (!tasks.ok()) return -1;
    if (*host < hosts_before + hosts) return static_cast<int>(*tasks);
    hosts_before += hosts;
  }
  return -1;
}

// The first of "gpu[003-006,9],login1" is "gpu003": rank 0 runs there.
std::string first_slurm_host(std::string_view list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == std::string_view::npos || list[open] == ',') return std::string(list.substr(0, open));
  const std::string_view range = list.substr(open + 1);
  return fmt::format("{}{}", list.substr(0, open), range.substr(0, range.find_first_of("-,]")));
}

// What tells this job from every other on the host; empty where nothing does.
std::string job_identity(const Environment& environment, const Launcher& launcher,
                         const std::function<long()>& launcher_process) {
  if (launcher.name == "MPICH") {
    const long process = launcher_process();
    return process > 0 ? fmt::format("process {}", process) : "";
  }
  std::string identity;
  for (const std::string_view name : launcher.job) {
    const std::string_view value = name.empty() ? "" : value_of(environment, name);
    if (value.empty() && launcher.job_needs_all) return "";
    if (value.empty()) continue;
    identity += fmt::format("{} ", value);
    if (!launcher.job_needs_all) break;
  }
  return identity;
}

// A port that all ranks of a job compute alike: 16384 .. 32767, below the range from which Linux
// hands out ports by itself. (FNV-1a: spreads neighbouring job numbers.)
int port_of(std::string_view identity) {
  std::uint32_t hash = 2166136261U;
  for (const char letter : identity) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 16777619U;
  }
  return 16384 + static_cast<int>(hash % 16384U);
}

Result<WorldEnvironment> identity_from(const Environment& environment, const Launcher& launcher) {
  WorldEnvironment world;
  world.source = launcher.name;
  const std::string_view size_name = first_set(environment, launcher.size);
  const auto size = required(environment, launcher, size_name, 1, kMaxInt);
  TUTTI_TRY(size);
  const auto rank = required(environment, launcher, launcher.rank, 0, kMaxInt);
  TUTTI_TRY(rank);
  if (*rank >= *size)
    return invalid(fmt::format("{}={} contradicts {}={}: ranks count from 0", launcher.rank, *rank,
                               size_name, *size));
  const auto local_rank = optional(environment, launcher.local_rank, 0, kMaxInt);
  TUTTI_TRY(local_rank);
  const auto local_size = optional(environment, launcher.local_size, 1, kMaxInt);
  TUTTI_TRY(local_size);
  world.rank = *rank;
  world.world_size = *size;
  world.local_rank = *local_rank;
  world.local_size = launcher.name == "Slurm" ? slurm_local_size(environment) : *local_size;
  if (world.local_size > *size)
    return invalid(
        fmt::format("{}={} contradicts {}={}: a host cannot have more ranks than there "
                    "are",
                    launcher.local_size, world.local_size, size_name, *size));
  if (world.local_size > 0 && *local_rank >= world.local_size)
    return invalid(fmt::format("{}={} contradicts {} ranks on this host: local ranks count from 0",
                               launcher.local_rank, *local_rank, world.local_size));
  return world;
}

bool is_one_host(const Environment& environment, const WorldEnvironment& world) {
  return world.local_size == world.world_size ||
         (world.source == "Slurm" && value_of(environment, "SLURM_STEP_NUM_NODES") == "1");
}

// Fills in where to meet: as told, else as the job's identity gives it.
Status find_meeting_point(const Environment& environment, const Launcher& launcher,
                          const std::function<long()>& launcher_process, WorldEnvironment& world) {
  const auto port = optional(environment, "MASTER_PORT", 1, 65535);
  TUTTI_TRY(port);
  world.master_address = value_of(environment, "MASTER_ADDR");
  if (world.master_address.empty()) {
    if (is_one_host(environment, world)) {
      world.master_address = "127.0.0.1";
    } else if (world.source == "Slurm") {
      world.master_address = first_slurm_host(value_of(environment, "SLURM_STEP_NODELIST"));
    }
  }
  if (*port > 0) {
    world.master_port = *port;
  } else if (const std::string job = job_identity(environment, launcher, launcher_process);
             !job.empty()) {
    world.master_port = port_of(job);
  }
  if (world.world_size == 1 || (!world.master_address.empty() && world.master_port > 0)) return {};
  const std::string_view missing = world.master_port > 0 ? "MASTER_ADDR is"
                                   : world.master_address.empty()
                                       ? "MASTER_ADDR and MASTER_PORT are"
                                       : "MASTER_PORT is";
  return invalid(fmt::format(
      "{} not set, and {} does not say where {} ranks meet; set MASTER_ADDR to the host of rank 0 "
      "and MASTER_PORT to a free port there, the same for all ranks",
      missing, launcher.name, world.world_size));
}

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// The parent of a process, from /proc/N/stat: "N (name, which may hold anything) S parent ...".
long parent_of(long process) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process));
  const std::size_t close = line.rfind(") ");
  if (close == std::string::npos) return 0;
  const auto words = split(std::string_view(line).substr(close + 2), ' ');
  if (words.size() < 2) return 0;
  const auto parent = parse_integer(words[1], 0, kMaxInt);
  return parent.ok() ? static_cast<long>(*parent) : 0;
}

}  // namespace

Environment capture_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::string_view value_of(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string_view() : std::string_view(found->second);
}

Result<WorldEnvironment> world_from_environment(const Environment& environment,
                                                const std::function<long()>& launcher_process) {
  const Launcher* launcher = recognize(environment);
  if (launcher == nullptr) {
    WorldEnvironment alone;
    alone.local_rank = 0;
    alone.local_size = 1;
    alone.source = "no launcher";
    return alone;
  }
  auto world = identity_from(environment, *launcher);
  TUTTI_TRY(world);
  TUTTI_TRY(find_meeting_point(environment, *launcher, launcher_process, *world));
  return world;
}

Result<WorldEnvironment> world_from_environment(const Environment& environment) {
  return world_from_environment(environment, find_launcher_process);
}

long find_launcher_process() {
  // A shell or a profiler may stand between the daemon and us.
  for (long process = getppid(); process > 1; process = parent_of(process))
    if (first_line(fmt::format("/proc/{}/comm", process)) == "hydra_pmi_proxy") return process;
  return 0;
}

}  // namespace tutti::base
