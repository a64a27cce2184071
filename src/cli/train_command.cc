// train_command.cc: options of `tutti train`, and who the ranks are: those of a launcher, or
// threads of this process.
#include "cli/train_command.hpp"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/environment.hpp"
#include "training/architecture/config.hpp"
#include "training/plan/figures.hpp"
#include "training/plan/pipeline_clock.hpp"
#include "training/plan/pipeline_drawing.hpp"
#include "training/plan/pipeline_generators.hpp"
#include "training/trainer/run_config.hpp"
#include "training/trainer/setup.hpp"
#include "training/trainer/trainer.hpp"
#include "training/trainer/verify.hpp"

namespace tutti::cli {
namespace {

using training::Ending;
using training::RunConfig;
using training::RunOutcome;

constexpr int kDiffers = 1;
constexpr int kRanksMax = 256;  // as threads

const char* const kFooter = R"(
Ranks are those of a launcher (`tutti run -n 2 -- tutti train run.toml`, torchrun, mpirun), or, with
--ranks, threads of this process. docs/training-config.md tells all keys of run.toml.

Exit codes: 0 complete, 1 files or memory failed (--verify: the layout differs), 2 what was asked
cannot be, 3 a rank died or a deadline passed, 4 the loss is no number, 130 Ctrl-C (a checkpoint was
written).)";

struct Options {
  std::string file;
  std::vector<std::string> overrides;
  int ranks = 0;
  bool verify = false;
  bool plan = false;
  bool show = false;
  std::string drawing;
  std::string trace;
};

// Set by Ctrl-C; the run ends after its step. A second one ends the process as usual, unless it
// comes at once: where the launcher passes on what the terminal has told all, ranks hear it twice.
constexpr std::time_t kSameSignalS = 1;
std::atomic<bool> stop_asked{false};
std::atomic<std::time_t> asked_at_s{0};

extern "C" void ask_to_stop(int signal) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (!stop_asked.exchange(true)) return asked_at_s.store(now.tv_sec);
  if (now.tv_sec - asked_at_s.load() <= kSameSignalS) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

int report(const Status& status, Ending ending) {
  if (!status.ok()) fmt::print(stderr, "tutti train: {}\n", status.to_string());
  return static_cast<int>(ending);
}

int refuse(const Status& status) { return report(status, training::ending_of(status)); }

RunOutcome train_here(const RunConfig& run, Communicator& world) {
  RunOutcome outcome = training::train(run, world, &stop_asked);
  if (!outcome.status.ok()) world.abort();  // whoever still waits for this rank hears of it
  return outcome;
}

// What several ranks say in the same words is said once. Who lost others did so because one of them
// failed: that one's code tells more.
int train_threads(const RunConfig& run, int ranks) {
  auto worlds = Communicator::for_threads(ranks, training::communicator_options(run));
  if (!worlds.ok()) return refuse(worlds.status());
  std::vector<RunOutcome> outcomes(worlds->size());
  std::vector<std::thread> threads;
  for (Communicator& world : *worlds)
    threads.emplace_back(
        [&] { outcomes[static_cast<std::size_t>(world.rank())] = train_here(run, world); });
  for (std::thread& thread : threads) thread.join();
  int code = 0;
  std::set<std::string> said;
  for (const RunOutcome& outcome : outcomes) {
    const bool is_new = said.insert(outcome.status.to_string()).second;
    const int its =
        is_new ? report(outcome.status, outcome.ending) : static_cast<int>(outcome.ending);
    if (code == 0 || code == static_cast<int>(Ending::lost)) code = its != 0 ? its : code;
  }
  return code;
}

int train(const RunConfig& run, int ranks) {
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  if (ranks > 0) return train_threads(run, ranks);
  auto world = Communicator::from_environment(training::communicator_options(run));
  if (!world.ok()) return refuse(world.status());
  const RunOutcome outcome = train_here(run, *world);
  const int code = report(outcome.status, outcome.ending);
  if (code == 0) static_cast<void>(world->close());
  return code;
}

int verify(const RunConfig& run, int ranks) {
  if (ranks == 0) {
    auto degrees = training::ranks_of(run);
    if (!degrees.ok()) return refuse(degrees.status());
    ranks = *degrees;
  }
  if (ranks > kRanksMax)
    return refuse(
        Status(StatusCode::invalid_argument,
               fmt::format("the degrees make {} ranks; at most {} are threads", ranks, kRanksMax)));
  auto verdict = training::verify(run, ranks, stdout);
  if (!verdict.ok()) return refuse(verdict.status());
  fmt::print("\nlargest difference: losses {:.2e} (tolerance {:.0e}), weights {:.2e}\n",
             verdict->loss_difference, verdict->tolerance, verdict->weight_difference);
  fmt::print("{}\n", verdict->same_bits ? "the layout equals one process to the bit"
                     : verdict->equal   ? "the layout equals one process within the tolerance"
                                        : "THE LAYOUT DIFFERS FROM ONE PROCESS");
  return verdict->equal ? 0 : kDiffers;
}

training::PlanOptions plan_options(const training::EngineOptions& engine) {
  training::PlanOptions options;
  options.sequence = engine.sequence;
  options.micro_batch = engine.micro_batch_rows;
  options.micro_batches = static_cast<int>(engine.micro_batches / engine.mesh.dp());
  options.zero_stage = static_cast<int>(engine.data.zero);
  options.keep_values = engine.data.reshard == training::Reshard::never;
  options.sequence_parallel = engine.sequence_parallel;
  options.recompute = engine.recompute.what;
  options.schedule = engine.schedule;
  options.chunks_per_rank = engine.chunks_per_rank;
  options.own_schedule = engine.own_schedule;
  options.recipe =
      engine.type == DataType::bfloat16 || engine.type == DataType::float16 ? "bf16" : "f32";
  options.bucket_bytes = engine.data.bucket_bytes;
  return options;
}

int draw(const training::PlanOptions& options, int ranks, const std::string& path) {
  auto schedule = options.own_schedule
                      ? Result<training::PipelineSchedule>(*options.own_schedule)
                      : training::make_schedule(options.schedule, ranks, options.micro_batches,
                                                options.chunks_per_rank);
  if (!schedule.ok()) return refuse(schedule.status());
  auto chart = training::run_clock(*schedule, training::Durations{});
  if (!chart.ok()) return refuse(chart.status());
  std::ofstream file(path);
  file << training::draw_svg(*chart);
  if (!file.flush()) return refuse(Status(StatusCode::system_error, "cannot write " + path));
  fmt::print("drew the pipeline's schedule to {}\n", path);
  return 0;
}

int plan(const RunConfig& run, const Options& asked) {
  auto model = training::model_of(run);
  if (!model.ok()) return refuse(model.status());
  int ranks = asked.ranks;
  if (ranks == 0) {
    auto degrees = training::ranks_of(run);
    if (!degrees.ok()) return refuse(degrees.status());
    ranks = *degrees;
  }
  auto engine = training::engine_options(run, *model, ranks);
  if (!engine.ok()) return refuse(engine.status());
  const training::PlanOptions options = plan_options(*engine);
  auto estimate = training::estimate(*model, engine->mesh, options);
  if (!estimate.ok()) return refuse(estimate.status());
  fmt::print("{}", training::plan_table(*estimate));
  if (engine->recompute.every > 1)
    fmt::print("activations are told as if each block were computed again by itself\n");
  return asked.drawing.empty() ? 0 : draw(options, engine->mesh.pp, asked.drawing);
}

// Ranks of a launcher would all do the same, each for itself.
Status refuse_launcher(const char* flag) {
  const auto world = base::world_from_environment(base::capture_environment());
  if (world.ok() && world->world_size == 1) return {};
  return Status(StatusCode::invalid_argument,
                fmt::format("{} is made by one process: call it without a launcher, and say with "
                            "--ranks how many ranks it is about",
                            flag));
}

int run_command(const Options& options) {
  if (options.verify || options.plan)
    if (const Status status = refuse_launcher(options.verify ? "--verify" : "--plan"); !status.ok())
      return refuse(status);
  auto run = training::read_run_config(options.file, options.overrides);
  if (!run.ok()) return refuse(run.status());
  if (!options.trace.empty()) run->log.trace = options.trace;
  if (options.show) {
    fmt::print("{}", training::to_toml(*run));
    return 0;
  }
  if (options.plan) return plan(*run, options);
  return options.verify ? verify(*run, options.ranks) : train(*run, options.ranks);
}

}  // namespace

void add_train_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "Train a model, verify or plan a layout");
  auto options = std::make_shared<Options>();
  command->add_option("run.toml", options->file, "What to train, and how")->required();
  command->add_option("--set", options->overrides, "Override a key: --set parallel.tp=2")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--ranks", options->ranks,
                   "Ranks as threads of this process; without: those of the launcher")
      ->check(CLI::Range(1, kRanksMax));
  auto* verify = command->add_flag("--verify", options->verify,
                                   "Train with the layout and with one process, and compare");
  auto* plan = command
                   ->add_flag("--plan", options->plan,
                              "Tell memory, communication and the bubble, and train nothing")
                   ->excludes(verify);
  command->add_option("--draw", options->drawing, "The pipeline's schedule as SVG, into that file")
      ->needs(plan);
  command
      ->add_option("--trace", options->trace,
                   "Write when each rank computed and communicated, as log.trace does")
      ->type_name("FILE.json");
  command->add_flag("--show", options->show, "Print all keys with their values, and stop");
  command->footer(kFooter);
  command->callback([options, &exit_code] { exit_code = run_command(*options); });
}

}  // namespace tutti::cli
