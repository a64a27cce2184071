// Many seeds on all cores with a count of what happened, or one seed in detail.
#include "cli/chaos_command.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/cpu.hpp"
#include "cli/chaos_world.hpp"

namespace tutti::cli {
namespace {

using Outcome = ChaosVerdict::Outcome;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kTroublesShown = 10;

struct ChaosOptions {
  std::uint64_t seeds = 1000;
  std::uint64_t first_seed = 1;
  std::uint64_t seed = 0;  // 0: many
  bool trace = false;
  int threads = 0;
  ChaosLimits limits;
};

struct Tally {
  std::uint64_t worlds = 0;
  std::uint64_t calls = 0;
  std::uint64_t events = 0;
  std::uint64_t kills = 0;
  std::uint64_t silent_kills = 0;
  std::uint64_t pauses = 0;
  std::uint64_t aborts = 0;
  std::uint64_t leavers = 0;
  std::uint64_t damaged_frames = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t failed_calls = 0;
  std::uint64_t shrinks = 0;
  std::uint64_t wrong = 0;
  std::uint64_t hangs = 0;
  std::uint64_t leaks = 0;
  std::uint64_t errors = 0;
  std::map<std::uint64_t, std::string> troubles;  // by seed
};

void count(Tally& tally, std::uint64_t seed, const ChaosVerdict& verdict) {
  tally.worlds += 1;
  tally.calls += static_cast<std::uint64_t>(verdict.calls);
  tally.events += verdict.events;
  tally.kills += static_cast<std::uint64_t>(verdict.kills);
  tally.silent_kills += static_cast<std::uint64_t>(verdict.silent_kills);
  tally.pauses += static_cast<std::uint64_t>(verdict.pauses);
  tally.aborts += static_cast<std::uint64_t>(verdict.aborts);
  tally.leavers += static_cast<std::uint64_t>(verdict.leavers);
  tally.damaged_frames += verdict.damaged_frames;
  tally.mismatches += static_cast<std::uint64_t>(verdict.mismatches);
  tally.shrinks += static_cast<std::uint64_t>(verdict.shrinks);
  tally.failed_calls += static_cast<std::uint64_t>(verdict.failed_calls);
  tally.wrong += verdict.outcome == Outcome::wrong;
  tally.hangs += verdict.outcome == Outcome::hang;
  tally.leaks += verdict.outcome == Outcome::leak;
  tally.errors += verdict.outcome == Outcome::error;
  if (verdict.outcome != Outcome::right) tally.troubles.emplace(seed, verdict.trouble);
}

void show_progress(const Tally& tally, std::uint64_t seeds) {
  if (isatty(fileno(stderr)) == 0) return;
  fmt::print(stderr, "\r{} of {} worlds, {} wrong, {} hangs", tally.worlds, seeds, tally.wrong,
             tally.hangs);
  if (tally.worlds == seeds) fmt::print(stderr, "\n");
}

Tally run_many(const ChaosOptions& options) {
  Tally tally;
  std::mutex mutex;
  std::atomic<std::uint64_t> next{0};
  auto work = [&] {
    for (std::uint64_t i = next++; i < options.seeds; i = next++) {
      const std::uint64_t seed = options.first_seed + i;
      const ChaosVerdict verdict = run_chaos_world(seed, options.limits);
      std::lock_guard lock(mutex);
      count(tally, seed, verdict);
      if (tally.worlds % 100 == 0 || tally.worlds == options.seeds)
        show_progress(tally, options.seeds);
    }
  };
  std::vector<std::jthread> threads;
  const int extra = (options.threads > 0 ? options.threads : base::usable_cpu_count()) - 1;
  for (int i = 0; i < extra; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  return tally;
}

std::string flags(const ChaosLimits& limits) {
  return std::string(limits.faults ? " --faults" : "") +
         (limits.mismatches ? " --mismatches" : "") + (limits.strict ? " --strict" : "");
}

int report(const Tally& tally, double seconds, const ChaosOptions& options) {
  std::size_t shown = 0;
  for (const auto& [seed, trouble] : tally.troubles) {
    if (++shown > kTroublesShown) break;
    fmt::print("seed {}: {}\n    look again: tutti chaos --seed {} --ranks {}..{} --calls {}{}\n",
               seed, trouble, seed, options.limits.ranks_min, options.limits.ranks_max,
               options.limits.calls_max, flags(options.limits));
  }
  if (options.limits.faults)
    fmt::print(
        "{} ranks died and {} fell silent, {} paused, {} aborted, {} frames were damaged; {} calls "
        "failed for it, and named the cause; {} ranks left, {} times the survivors went on\n",
        tally.kills, tally.silent_kills, tally.pauses, tally.aborts, tally.damaged_frames,
        tally.failed_calls, tally.leavers, tally.shrinks);
  if (options.limits.mismatches)
    fmt::print("{} times a rank made another call than the others, and all of them were told{}\n",
               tally.mismatches, options.limits.strict ? " before anything was written" : "");
  fmt::print(
      "{} worlds (seeds {}..{}), {} calls, {} events: {} wrong, {} hangs, {} leaks, {} errors; "
      "{:.1f} s, {:.0f} worlds/s\n",
      tally.worlds, options.first_seed, options.first_seed + options.seeds - 1, tally.calls,
      tally.events, tally.wrong, tally.hangs, tally.leaks, tally.errors, seconds,
      static_cast<double>(tally.worlds) / seconds);
  return tally.troubles.empty() ? 0 : 1;
}

int run_one(const ChaosOptions& options) {
  const ChaosListener listener = {[](const std::string& line) { fmt::print("{}\n", line); },
                                  options.trace};
  const ChaosVerdict verdict = run_chaos_world(options.seed, options.limits, listener);
  fmt::print("{} calls, {} events, event hash {:016x}: {}\n", verdict.calls, verdict.events,
             verdict.event_hash, verdict.outcome == Outcome::right ? "right" : verdict.trouble);
  return verdict.outcome == Outcome::right ? 0 : 1;
}

int run(const ChaosOptions& options) {
  if (options.seed != 0) return run_one(options);
  const auto begin = Clock::now();
  const Tally tally = run_many(options);
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  return report(tally, seconds.count(), options);
}

// "2..16" or "4".
bool parse_range(const std::string& text, ChaosLimits& limits) {
  int low = 0;
  int high = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%d..%d%n", &low, &high, &used) != 2) {
    if (std::sscanf(text.c_str(), "%d%n", &low, &used) != 1) return false;
    high = low;
  }
  if (used != static_cast<int>(text.size()) || low < 1 || high < low || high > 1024) return false;
  limits.ranks_min = low;
  limits.ranks_max = high;
  return true;
}

}  // namespace

void add_chaos_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "chaos", "Run the executor in simulated worlds: random calls, delays, full queues");
  auto options = std::make_shared<ChaosOptions>();
  command->add_option("--seeds", options->seeds, "How many worlds")->capture_default_str();
  command->add_option("--first-seed", options->first_seed, "The seed of the first")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "One world, in detail: its calls and event hash");
  command->add_flag("--trace", options->trace, "With --seed: every event as well");
  command->add_flag("--faults", options->limits.faults,
                    "Ranks die, pause and abort, frames are damaged; the survivors go on");
  command->add_flag("--mismatches", options->limits.mismatches,
                    "A rank makes another call than the others");
  command->add_flag("--strict", options->limits.strict,
                    "Calls are checked before they are made (TUTTI_CHECK=strict)");
  command->add_option("--threads", options->threads, "Threads; 0: one for each core")
      ->capture_default_str();
  command->add_option("--calls", options->limits.calls_max, "At most so many calls in a world")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--ranks",
          [options](const std::string& text) {
            if (!parse_range(text, options->limits))
              throw CLI::ValidationError("--ranks", "'" + text + "' is no range such as 2..16");
          },
          "Ranks of a world")
      ->default_str("2..32");
  command->footer("A world follows from its seed alone: --seed S replays it event by event.");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tutti::cli
