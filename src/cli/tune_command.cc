// tune_command.cc: options of `tutti tune`, one world after the other, the table for people and the
// file for the planner.
#include "cli/tune_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/cpu.hpp"
#include "base/environment.hpp"
#include "base/machine.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "cli/tune_choose.hpp"
#include "cli/tune_measure.hpp"
#include "cli/tune_world.hpp"
#include "collectives/explain.hpp"
#include "runtime/tuning.hpp"

namespace tutti::cli {
namespace {

using collectives::TunedTime;
using collectives::TuningPlace;
using collectives::TuningTable;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kUsageError = 2;
constexpr int kRanksMax = 64;
constexpr std::size_t kBytesMax = std::size_t{256} << 20;
constexpr double kBusyLoad = 0.6;  // of each core
// Of the time, for starting worlds and the search for the model's numbers.
constexpr double kReserved = 0.2;

struct Options {
  std::string ranks;
  std::string transports = "memory,shm,tcp";
  std::string collectives =
      "all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all,gather,scatter";
  std::string sizes = "8,1K,8K,64K,512K,4M";
  double seconds = 60;
  std::string output;
  bool dry_run = false;
  bool show = false;
};

// The options, read.
struct Job {
  std::vector<std::string> transports;
  std::vector<int> ranks;
  TuneWork work;
  std::string machine;
  std::string path;
};

Status refuse(std::string text) { return Status(StatusCode::invalid_argument, std::move(text)); }

Result<std::vector<int>> read_ranks(const std::string& text) {
  std::set<int> ranks;
  for (const std::string_view word : base::split(text, ',')) {
    const auto number = base::parse_integer(word, 2, kRanksMax);
    if (!number.ok()) return number.status().with_context("--ranks");
    ranks.insert(static_cast<int>(*number));
  }
  if (text.empty()) {
    ranks = {2, 4, 8};
    ranks.insert(std::clamp(tune_key("shm", kRanksMax).cores, 2, kRanksMax));
  }
  return std::vector<int>(ranks.begin(), ranks.end());
}

Status read_work(const Options& options, Job& job) {
  for (const std::string_view word : base::split(options.transports, ',')) {
    const auto choice = base::parse_transport_choice(word);
    if (!choice.ok() || word.empty() || *choice == base::TransportChoice::automatic)
      return refuse(fmt::format("--transport {}: memory, shm, tcp, or some of them", word));
    job.transports.emplace_back(word);
  }
  for (const std::string_view word : base::split(options.collectives, ',')) {
    const auto collective = parse_collective(word);
    if (!collective.ok()) return collective.status().with_context("--collectives");
    if (*collective == Collective::send_recv || *collective == Collective::barrier)
      return refuse(fmt::format("--collectives {}: there is nothing to choose", word));
    job.work.collectives.push_back(*collective);
  }
  std::set<std::size_t> sizes;
  for (const std::string_view word : base::split(options.sizes, ',')) {
    const auto bytes = base::parse_bytes(word);
    if (!bytes.ok()) return bytes.status().with_context("--sizes");
    if (*bytes < 1 || *bytes > kBytesMax) return refuse("--sizes: 1 B to 256 MiB each");
    sizes.insert(static_cast<std::size_t>(*bytes));
  }
  job.work.sizes.assign(sizes.begin(), sizes.end());
  if (job.transports.empty() || job.work.collectives.empty() || sizes.empty())
    return refuse("--transport, --collectives and --sizes name one or more");
  return {};
}

Result<Job> read_job(const Options& options) {
  Job job;
  TUTTI_TRY(read_work(options, job));
  auto ranks = read_ranks(options.ranks);
  TUTTI_TRY(ranks);
  job.ranks = *std::move(ranks);
  job.machine = base::machine_kind();
  const base::Environment environment = base::capture_environment();
  job.path = options.output;
  if (const auto named = base::value_of(environment, "TUTTI_TUNING_FILE");
      job.path.empty() && named != "off")
    job.path = named;
  if (job.path.empty()) job.path = runtime::default_tuning_path(environment, job.machine);
  if (job.path.empty() && !options.dry_run)
    return refuse("neither HOME nor XDG_CACHE_HOME is set; say where to write with --output");
  return job;
}

// ---- The table for people ----

std::string choice_text(const collectives::TunedChoice& choice) {
  const auto& settings = choice.settings;
  return fmt::format("{:<17} {:<8} {:>2} {:>8}", choice.algorithm,
                     collectives::lowering_name(settings), settings.channels,
                     base::format_bytes(settings.slice_bytes));
}

const TunedTime* time_of(const TuningPlace& place, const TunedTime& like,
                         const collectives::TunedChoice& choice) {
  for (const TunedTime& time : place.times)
    if (time.collective == like.collective && time.bytes == like.bytes && time.choice == choice)
      return &time;
  return nullptr;
}

// "1.20x direct" where another choice would be the model's, and how much slower that is.
std::string model_text(const TuningPlace& place, const TunedTime& chosen, TunePredictor& model) {
  const auto choice = model.choice(chosen.collective, chosen.bytes);
  if (!choice || *choice == chosen.choice) return "the same";
  const TunedTime* time = time_of(place, chosen, *choice);
  const std::string name =
      fmt::format("{} {}", choice->algorithm, collectives::lowering_name(choice->settings));
  return time == nullptr ? name : fmt::format("{} {:.2f}x", name, time->us / chosen.us);
}

void print_place(const TuningTable& table, const TuningPlace& place) {
  const collectives::TuningKey& key = place.key;
  fmt::print("\n{}, {} ranks on {} core{}\n", key.transport, key.ranks, key.cores,
             key.cores == 1 ? "" : "s");
  fmt::print("  {:<14} {:>8}  {:<17} {:<8} {:>2} {:>8} {:>11} {:>11} {:>11}  {}\n", "collective",
             "size", "algorithm", "lowering", "ch", "slice", "predicted", "measured", "plain",
             "model alone");
  TunePredictor fitted(key, table.figures(key.transport));
  TunePredictor model(key, nullptr);
  const TunedTime* last = nullptr;
  for (const TunedTime& each : place.times) {
    const bool known = last && last->collective == each.collective && last->bytes == each.bytes;
    last = &each;
    const collectives::TunedUse* use = use_for(place, each.collective, each.bytes);
    const TunedTime* time = use && !known ? time_of(place, each, use->choice) : nullptr;
    if (time == nullptr) continue;
    fmt::print("  {:<14} {:>8}  {} {:>11} {:>11} {:>11}  {}\n", to_string(time->collective),
               base::format_bytes(time->bytes), choice_text(time->choice),
               collectives::format_time(fitted.us(time->collective, time->bytes, time->choice)),
               collectives::format_time(time->us),
               time->plain_us ? collectives::format_time(*time->plain_us) : "-",
               model_text(place, *time, model));
  }
}

void print_table(const TuningTable& table) {
  fmt::print("machine: {}\n", table.machine);
  for (const auto& figures : table.transports) {
    fmt::print("{}:", figures.transport);
    for (const auto& field : collectives::figure_fields())
      if (figures.*field.value) fmt::print(" {}={:.4g}", field.name, *(figures.*field.value));
    fmt::print("\n");
  }
  for (const TuningPlace& place : table.places) print_place(table, place);
}

// ---- Measuring ----

void tell(const std::string& text) {
  fmt::print(stderr, "{}", text);
  std::fflush(stderr);
}

Result<TuneFindings> measure_world(const Job& job, const std::string& transport, int ranks,
                                   Seconds time) {
  TuneWork work = job.work;
  work.time = time;
  work.messages = tune_key(transport, ranks).cores == ranks;
  const auto limit = std::chrono::milliseconds(static_cast<int>(time.count() * 4000) + 60'000);
  auto text = in_tune_world(transport, ranks, limit,
                            [&](runtime::CommunicatorParts parts) -> Result<std::string> {
                              const bool speaks = parts.transport->rank() == 0;
                              auto findings = tune_measure(std::move(parts), work);
                              TUTTI_TRY(findings);
                              return speaks ? encode(*findings) : std::string();
                            });
  TUTTI_TRY(text);
  auto findings = decode_findings(*text);
  TUTTI_TRY(findings);
  findings->place.key = tune_key(transport, ranks);
  return findings;
}

// All worlds of a transport; those that fail are named and left out.
std::vector<TuneFindings> measure_transport(const Job& job, const std::string& transport,
                                            Clock::time_point end, std::size_t& worlds_left) {
  std::vector<TuneFindings> all;
  const std::size_t blocks = job.work.collectives.size() * job.work.sizes.size();
  for (const int ranks : job.ranks) {
    const Seconds share = Seconds(end - Clock::now()) / static_cast<double>(worlds_left--);
    tell(fmt::format("{:<6} {:>2} ranks: ", transport, ranks));
    const auto begin = Clock::now();
    auto findings = measure_world(job, transport, ranks, std::max(share, Seconds(0.1)));
    if (!findings.ok()) {
      tell(fmt::format("left out: {}\n", findings.status().message()));
      continue;
    }
    tell(fmt::format("{} ways timed in {:.1f} s", findings->place.times.size(),
                     Seconds(Clock::now() - begin).count()));
    if (findings->message_us > 0)
      tell(fmt::format("; 8 B one way {:.4g} us, 4 MiB {:.4g} GB/s", findings->message_us,
                       findings->bytes_per_ns));
    tell(findings->by_model.size() < blocks ? "; no time for the rest\n" : "\n");
    all.push_back(*std::move(findings));
  }
  return all;
}

// Other work takes cores away for milliseconds: times of microseconds then say little.
void warn_of_load() {
  double load = 0;
  if (getloadavg(&load, 1) != 1 || load < kBusyLoad * base::usable_cpu_count()) return;
  tell(fmt::format(
      "warning: this machine is busy (load {:.1f} on {} cores): do not trust the times; "
      "measure again when it is idle\n",
      load, base::usable_cpu_count()));
}

// The transport's numbers and places, into the table.
void add_transport(const std::string& transport, std::vector<TuneFindings> worlds,
                   TuningTable& table) {
  if (worlds.empty()) return;
  tell(fmt::format("{:<6} the model's numbers: ", transport));
  TuneFit fit = fit_figures(transport, worlds);
  tell(fmt::format("half of all times within a factor of {:.2f}, before {:.2f}\n", fit.error_after,
                   fit.error_before));
  table.transports.push_back(fit.figures);
  for (TuneFindings& world : worlds) {
    world.place.uses = tune_uses(tune_winners(world), world.place);
    table.places.push_back(std::move(world.place));
  }
}

Result<TuningTable> measure(const Job& job, double seconds) {
  TuningTable table;
  table.machine = job.machine;
  const auto end = Clock::now() +
                   std::chrono::duration_cast<Clock::duration>(Seconds(seconds * (1 - kReserved)));
  std::size_t worlds_left = job.transports.size() * job.ranks.size();
  for (const std::string& transport : job.transports)
    add_transport(transport, measure_transport(job, transport, end, worlds_left), table);
  if (table.places.empty()) return refuse("nothing could be measured");
  return table;
}

constexpr const char* kComment =
    R"(# What `tutti tune` measured on this machine. Edit it as you like: docs/tuning.md says what
# the lines mean, and `tutti tune --show` prints them as a table. Without this file the model
# plans alone.
)";

Status run(const Options& options) {
  const Result<Job> job = read_job(options);
  TUTTI_TRY(job);
  if (options.show) {
    const auto tuning = runtime::read_tuning_file(job->path, job->machine);
    TUTTI_TRY(tuning);
    print_table(*tuning->table);
    fmt::print("\nread from {}\n", job->path);
    return {};
  }
  tell(fmt::format("measuring {} for about {:.0f} s\n", job->machine, options.seconds));
  warn_of_load();
  const Result<TuningTable> table = measure(*job, options.seconds);
  TUTTI_TRY(table);
  print_table(*table);
  if (options.dry_run) {
    fmt::print("\nnothing is written (--dry-run)\n");
    return {};
  }
  TUTTI_TRY(runtime::write_tuning_file(job->path, *table, kComment));
  const base::Environment environment = base::capture_environment();
  const bool found = job->path == runtime::default_tuning_path(environment, job->machine);
  fmt::print("\nwritten to {}\n", job->path);
  if (found)
    fmt::print("Programs that use Tutti on such machines read it from now on.\n");
  else
    fmt::print("Programs read it where TUTTI_TUNING_FILE={} is set.\n", job->path);
  fmt::print("To undo: rm {}\n", job->path);
  return {};
}

int run_tune(const Options& options) {
  const Status status = run(options);
  if (status.ok()) return std::fflush(stdout) == 0 ? 0 : 1;
  fmt::print(stderr, "tutti tune: {}\n", status.message());
  return status.code() == StatusCode::invalid_argument ? kUsageError : 1;
}

}  // namespace

void add_tune_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("tune", "Measure this machine and write the table that the planner reads");
  command->add_option("--ranks", options->ranks, "Such as 2,4; by default 2, 4, 8 and the cores")
      ->type_name("LIST");
  command->add_option("--transport", options->transports, "Some of them")
      ->type_name("LIST")
      ->capture_default_str();
  command->add_option("--collectives", options->collectives, "Some of them")
      ->type_name("LIST")
      ->capture_default_str();
  command->add_option("--sizes", options->sizes, "What nccl-tests call size")
      ->type_name("LIST")
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "How long all of it may take, roughly")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--output", options->output,
                   "The file to write, or to --show; else TUTTI_TUNING_FILE, else the one that "
                   "programs look for")
      ->type_name("PATH");
  command->add_flag("--dry-run", options->dry_run, "Measure and print, but write nothing");
  command->add_flag("--show", options->show, "Print the table that there is, and measure nothing");
  command->footer("docs/tuning.md tells how tables are found, read and edited.");
  command->callback([options, &exit_code] { exit_code = run_tune(*options); });
}

}  // namespace tutti::cli
