// Finds the processes, then prints; all judging is in runtime/flight.
#include "cli/doctor_command.hpp"

#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"
#include "cli/doctor_checks.hpp"
#include "cli/doctor_json.hpp"
#include "runtime/flight/chain.hpp"
#include "runtime/flight/text.hpp"

namespace tutti::cli {
namespace {

using base::format_bytes;
using runtime::flight::CommunicatorView;
using runtime::flight::Process;

constexpr std::size_t kCallsShown = 8;

struct Options {
  long pid = 0;
  std::size_t calls = kCallsShown;
  bool json = false;
};

std::string describe_memory(const MemoryUse& use) {
  return fmt::format("{} (transport {}, scratch {}, plans {}, recorder {})",
                     format_bytes(use.total_bytes()), format_bytes(use.transport_bytes),
                     format_bytes(use.scratch_bytes), format_bytes(use.plan_bytes),
                     format_bytes(use.recorder_bytes));
}

std::string describe_culprit(const std::vector<Process>& all, const CommunicatorView& view) {
  const auto culprit = runtime::flight::find_culprit_of(all, view);
  return culprit ? to_string(*culprit) : "no rank has been waiting for long";
}

void print_communicator(const CommunicatorView& view, const std::vector<Process>& all,
                        const Options& options) {
  fmt::print("  rank {} of {} over {}, made {} ago, {} calls (job {:016x}, context {:x})\n",
             view.rank, view.size, view.transport, runtime::flight::format_seconds(view.made_ago),
             view.begun, view.job, view.context);
  fmt::print("    memory: {}\n", describe_memory(view.memory));
  fmt::print("    now: {}\n", describe_state(view));
  if (view.failure)
    fmt::print("    failed {} ago: {}: {}\n", runtime::flight::format_seconds(view.failure->ago),
               to_string(view.failure->code), view.failure->text);
  if (!view.calls.empty())
    fmt::print("    latest calls:\n{}", describe_calls(view, options.calls, "      "));
  fmt::print("    ranks on this host:\n{}", describe_ranks(all, view, "      "));
  fmt::print("    culprit: {}\n", describe_culprit(all, view));
}

int print_process(const Options& options) {
  const auto process = runtime::flight::find_process(options.pid);
  if (!process.ok()) {
    fmt::print(stderr, "tutti doctor: {}\n", process.status().message());
    return 1;
  }
  const std::vector<Process> all = runtime::flight::find_processes();
  if (options.json) {
    fmt::print("{}", doctor_json({*process}, all, {}));
    return 0;
  }
  fmt::print("process {} ({}), {}\n", process->pid, process->command,
             runtime::flight::describe_process_state(process->state));
  for (const CommunicatorView& view : process->recorder.communicators)
    print_communicator(view, all, options);
  if (process->recorder.communicators.empty()) fmt::print("  no communicator\n");
  if (process->recorder.left_out > 0)
    fmt::print("  {} more communicators found no room in the recorder\n",
               process->recorder.left_out);
  return 0;
}

// One communicator of each job and context stands for all of its ranks.
void print_jobs(const std::vector<Process>& all) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, const CommunicatorView*> groups;
  for (const Process& process : all)
    for (const CommunicatorView& view : process.recorder.communicators)
      groups.emplace(std::pair(view.job, view.context), &view);
  if (groups.empty()) fmt::print("no Tutti job of this user runs on this host\n");
  for (const auto& [key, view] : groups) {
    fmt::print("job {:016x}{}: {} ranks over {}\n", key.first,
               key.second == 0 ? "" : fmt::format(", communicator {:x}", key.second), view->size,
               view->transport);
    fmt::print("{}  culprit: {}\n", describe_ranks(all, *view, "  "), describe_culprit(all, *view));
  }
}

int print_all(const Options& options) {
  const std::vector<Process> all = runtime::flight::find_processes();
  const std::vector<Check> checks = check_machine(base::capture_environment());
  bool good = true;
  for (const Check& check : checks) good = good && check.good;
  if (options.json) {
    fmt::print("{}", doctor_json(all, all, checks));
    return good ? 0 : 1;
  }
  print_jobs(all);
  fmt::print("\nthis machine:\n");
  for (const Check& check : checks)
    fmt::print("  {:5} {:14} {}\n", check.good ? "ok" : "WRONG", check.name, check.found);
  return good ? 0 : 1;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Say what Tutti's processes do and whom they wait for, and check this machine");
  command->footer(
      "Without PID: all jobs of this user on this host, and whether the machine has what Tutti\n"
      "needs. With PID: that process's communicators, its latest calls, and which rank every "
      "other\n"
      "one is waiting for. Reads the flight recorders of the processes, so it also works while\n"
      "they are stopped or hang; it changes nothing.\n"
      "Exit code: 0; 1 when a check is wrong or the process cannot be looked into.");
  command->add_option("PID", options->pid, "The process to look into")
      ->check(CLI::Range(1L, 4194304L));
  command->add_option("--calls", options->calls, "How many of the latest calls to show")
      ->check(CLI::Range(0, 48))
      ->capture_default_str();
  command->add_flag("--json", options->json, "For programs");
  command->callback([options, &exit_code] {
    exit_code = options->pid > 0 ? print_process(*options) : print_all(*options);
    if (std::fflush(stdout) != 0) exit_code = 1;
  });
}

}  // namespace tutti::cli
