// Each check is a few lines that ask the kernel; a test reads the result.
#include "cli/doctor_checks.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "base/config.hpp"
#include "base/cpu.hpp"
#include "base/descriptor.hpp"
#include "base/text.hpp"
#include "cli/ask_child.hpp"
#include "transport/ucx/transport.hpp"

namespace tutti::cli {
namespace {

// A connection takes up to two descriptors for each peer and channel.
constexpr rlim_t kDescriptorsWanted = 1024;

// With a library that is opened, from a slow disk too.
constexpr std::chrono::seconds kPatience{10};

Check cores() {
  std::size_t cpus = 0;
  const std::vector<base::Core> cores = base::allowed_cores();
  for (const base::Core& core : cores) cpus += core.size();
  return {"cores", true,
          fmt::format("{} cores with {} hardware threads, of which {} can be used at once",
                      cores.size(), cpus, base::usable_cpu_count())};
}

// "MemAvailable:  1234 kB"
Check memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes && std::getline(file, unit))
    if (name == "MemAvailable:")
      return {"memory", true, fmt::format("{} available", base::format_bytes(kilobytes * 1024))};
  return {"memory", true, "the kernel does not say"};
}

std::string limit_text(rlim_t limit, bool bytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return bytes ? base::format_bytes(limit) : fmt::format("{}", limit);
}

Check locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return {"locked memory", true,
          fmt::format("at most {}; shm and tcp need none", limit_text(limit.rlim_cur, true))};
}

Check descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = fmt::format("at most {} open files", limit_text(limit.rlim_cur, false));
  if (limit.rlim_cur >= kDescriptorsWanted) return {"descriptors", true, text};
  return {"descriptors", false, text + "; large jobs over tcp need more: ulimit -n 4096"};
}

Check shared_memory() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0)
    return {"/dev/shm", true, "not there, and not needed: Tutti keeps nothing in it"};
  return {"/dev/shm", true,
          fmt::format("{} free; Tutti keeps nothing in it",
                      base::format_bytes(std::uint64_t{status.f_bavail} * status.f_frsize))};
}

Check memory_files() {
  const base::Descriptor file(memfd_create("tutti-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file && ftruncate(file.number(), 4096) == 0 &&
      fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK) == 0)
    return {"memory files", true, "work: transport shm, and looking into processes"};
  return {"memory files", false,
          "memfd_create() is refused: no transport shm (use TUTTI_TRANSPORT=tcp), and nobody can "
          "look into processes; allow the system call"};
}

Check settings(const base::Environment& environment) {
  const auto config = base::parse_config(environment);
  if (!config.ok()) return {"settings", false, config.status().message()};
  std::vector<std::string_view> set;
  for (const base::ConfigVariable& variable : base::config_variables())
    if (!base::value_of(environment, variable.name).empty()) set.push_back(variable.name);
  return {"settings", true,
          set.empty() ? "all at their defaults" : fmt::format("set: {}", base::join(set, ", "))};
}

Check launcher(const base::Environment& environment) {
  const auto world = base::world_from_environment(environment);
  if (!world.ok()) return {"launcher", false, world.status().message()};
  return {"launcher", true,
          fmt::format("rank {} of {} ({})", world->rank, world->world_size, world->source)};
}

// By a child: when UCX is opened it takes over fatal signals and starts a thread (which a child of
// a process with threads may not be able to have), and what is wrong with it must not end us.
Status try_ucx() {
  return ask_child(
      [] {
        setenv("UCX_VFS_ENABLE", "n", 1);
        return transport::can_use_ucx();
      },
      kPatience);
}

// Nobody misses UCX who does not ask for it.
Check transports() {
  const Status ucx = try_ucx();
  return {"transports", true,
          fmt::format("memory (threads), shm (processes of a host), tcp{}",
                      ucx.ok() ? ", ucx" : "; not ucx: " + ucx.message())};
}

}  // namespace

std::vector<Check> check_machine(const base::Environment& environment) {
  return {
      cores(),        memory(),     locked_memory(),       descriptors(),        shared_memory(),
      memory_files(), transports(), settings(environment), launcher(environment)};
}

}  // namespace tutti::cli
