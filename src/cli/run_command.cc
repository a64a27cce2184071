// run_command.cc: the options of `tutti run`; see run_command.hpp. What they do is in launcher/.
#include "cli/run_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/text.hpp"
#include "cli/launcher/launch.hpp"

namespace tutti::cli {
namespace {

constexpr int kUsageError = 2;

// The options as they are written.
struct RunOptions {
  int ranks = 0;
  std::string binding = "auto";
  std::string prefix = "auto";
  bool no_prefix = false;
  std::string transport;
  double timeout_seconds = 0;
  double grace_seconds = 3;
  std::string on_failure = "stop";
  int master_port = 0;
};

// CLI11's usage line cannot know of the program at the end.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: tutti run -n RANKS [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

constexpr const char* kFooter = R"(
Examples:
  tutti run -n 4 -- all_reduce_perf -b 8 -e 64M -f 2 -c 1
  tutti run -n 2 --transport tcp -- python3 train.py --epochs 3
  tutti run -n 8 --timeout 60 --prefix all -- ./test_program

Where PROGRAM is looked for: in PATH, then beside `tutti` itself. All that follows PROGRAM belongs
to it; "--" before it is needed only where its name starts with "-".

What ranks are told: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and
TUTTI_JOB_SECRET_FILE, a secret made for this job that no other user can read, and TUTTI_JOB_BOARD,
where they see which ranks have ended, so that nobody waits for one that died before it connected.
Where ranks share cores, GLIBC_TUNABLES gets glibc.pthread.rseq=0, unless you set that yourself: it
makes handing a core from rank to rank a tenth cheaper.

Output: lines of different ranks never mix. Each line starts with "[rank] ", except for those that
rank 0 writes on stdout. Rank 0 reads what is piped into `tutti run`; the others read nothing.

End: when a rank fails, the others have the grace time to end by themselves, then get SIGTERM, then
SIGKILL; the report names the rank that failed first, and its exit code becomes that of `tutti run`
(128 + the signal where a signal killed it; 124 when the time is up). With --on-failure continue the
failure is reported and the others go on: they get an error that names the lost rank and can shrink
their communicator; the exit code is then 0 when any rank ends with 0. SIGINT and SIGTERM are passed
on to the ranks; a second one kills them. Ranks never outlive `tutti run`.

For jobs on several hosts use the launcher you have: mpirun, srun and torchrun all start programs
that use Tutti. `tutti env` lists the settings that a job can be given.
)";

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000 + 0.5));
}

launcher::LaunchOptions launch_options(const RunOptions& options,
                                       std::vector<std::string> command) {
  launcher::LaunchOptions result;
  result.ranks = options.ranks;
  result.command = std::move(command);
  if (options.binding == "none") result.binding = launcher::Binding::none;
  if (options.binding == "core") result.binding = launcher::Binding::core;
  if (options.prefix == "all") result.prefix = launcher::Prefix::all;
  if (options.prefix == "none" || options.no_prefix) result.prefix = launcher::Prefix::none;
  result.transport = options.transport;
  result.master_port = options.master_port;
  result.limits.timeout = milliseconds(options.timeout_seconds);
  result.limits.grace = milliseconds(options.grace_seconds);
  if (options.on_failure == "continue") result.limits.on_failure = launcher::OnFailure::go_on;
  return result;
}

// The program and its arguments, from what CLI11 left over and what stood after "--".
std::vector<std::string> find_command(std::vector<std::string> left_over,
                                      const RunArguments& arguments) {
  // A "--" behind the program is the program's own.
  if (!left_over.empty() && arguments.has_dashes) left_over.emplace_back("--");
  left_over.insert(left_over.end(), arguments.after_dashes.begin(), arguments.after_dashes.end());
  return left_over;
}

std::string unknown_option(const std::string& option, const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* known : command.get_options())
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto near = base::nearest(option.substr(0, option.find('=')), views);
  return fmt::format("there is no option {}{}", option,
                     near ? fmt::format("; did you mean {}?", *near) : "");
}

int complain(const std::string& text) {
  fmt::print(stderr, "tutti run: {}\n", text);
  return kUsageError;
}

int run(const RunOptions& options, const CLI::App& command, const RunArguments& arguments) {
  const std::vector<std::string> left_over = command.remaining();
  if (!left_over.empty() && left_over.front().starts_with("-"))
    return complain(unknown_option(left_over.front(), command));
  auto program = find_command(left_over, arguments);
  if (program.empty())
    return complain("no program to run; for example: tutti run -n 2 -- all_reduce_perf -b 8 -e 1M");
  const auto code =
      launcher::launch(launch_options(options, std::move(program)), base::capture_environment());
  if (!code.ok()) return complain(code.status().message());
  return *code;
}

void add_options(CLI::App& command, RunOptions& options) {
  command.add_option("-n,--ranks", options.ranks, "How many ranks to start")
      ->required()
      ->type_name("RANKS")
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--bind", options.binding,
                  "Cores of each rank: auto shares them out, or the ranks among them; core takes "
                  "exactly one; none leaves the ranks where the system puts them")
      ->check(CLI::IsMember({"auto", "none", "core"}))
      ->capture_default_str();
  command
      .add_option("--transport", options.transport,
                  "How the ranks talk (sets TUTTI_TRANSPORT): auto, shm, tcp, ucx or net_plugin")
      ->type_name("NAME");
  command
      .add_option("--prefix", options.prefix,
                  "Lines that start with \"[rank] \": auto is all but rank 0's stdout")
      ->check(CLI::IsMember({"auto", "all", "none"}))
      ->capture_default_str();
  command.add_flag("--no-prefix", options.no_prefix, "The same as --prefix none");
  command.add_option("--timeout", options.timeout_seconds, "End the job after this long")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--grace", options.grace_seconds,
                  "How long ranks have to end by themselves, and again before they are killed")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option("--on-failure", options.on_failure,
                  "When a rank fails: stop ends the others, continue lets them go on")
      ->check(CLI::IsMember({"stop", "continue"}))
      ->capture_default_str();
  command
      .add_option("--master-port", options.master_port,
                  "Where rank 0 listens; without it a free port is taken")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
}

}  // namespace

RunArguments cut_run_arguments(std::vector<std::string> arguments) {
  RunArguments result;
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (arguments.empty() || arguments.front() != "run" || dashes == arguments.end()) {
    result.for_us = std::move(arguments);
    return result;
  }
  result.for_us.assign(arguments.begin(), dashes);
  result.after_dashes.assign(dashes + 1, arguments.end());
  result.has_dashes = true;
  return result;
}

void add_run_command(CLI::App& app, const RunArguments& arguments, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Start the ranks of a job on this machine");
  const auto options = std::make_shared<RunOptions>();
  add_options(*command, *options);
  command->prefix_command();
  command->formatter(std::make_shared<RunFormatter>());
  command->footer(kFooter);
  command->callback([options, command, &arguments, &exit_code] {
    exit_code = run(*options, *command, arguments);
  });
}

}  // namespace tutti::cli
