// trainer.cc: see trainer.hpp. A run is a struct with what lives as long as it does; train() is its
// table of contents.
#include "training/trainer/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "training/data/count_model.hpp"
#include "training/engine/engine.hpp"
#include "training/model/weights.hpp"
#include "training/plan/figures.hpp"
#include "training/report/text.hpp"
#include "training/trainer/checkpoint.hpp"
#include "training/trainer/checkpoint_state.hpp"
#include "training/trainer/peak.hpp"
#include "training/trainer/reports.hpp"
#include "training/trainer/run_data.hpp"
#include "training/trainer/setup.hpp"

namespace tutti::training {
namespace {

constexpr double kBitsPerNat = 1.4426950408889634;

class Run {
 public:
  Run(const RunConfig& config, Communicator& world, const std::atomic<bool>* stop)
      : config_(config), world_(world), stop_(stop) {}

  RunOutcome outcome() {
    const Status status = everything();
    outcome_.status = status;
    if (!status.ok()) outcome_.ending = diverged_ ? Ending::diverged : ending_of(status);
    return outcome_;
  }

 private:
  Status everything();
  Status open_data();
  Status make_engine();
  Status begin_weights();
  Status agree_on(const std::string& checkpoint);
  Status say_what_runs();
  Status steps();
  Status one_step(std::int64_t step);
  Status save(std::int64_t steps_done);
  Status finish();
  Result<double> validate(std::int64_t rows);
  Status compare_with_counts();

  bool is_first() const { return world_.rank() == 0; }

  const RunConfig& config_;
  Communicator& world_;
  const std::atomic<bool>* stop_;
  RunOutcome outcome_;
  bool diverged_ = false, stopped_ = false;

  std::unique_ptr<RunData> data_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<Reports> reports_;
  std::int64_t first_step_ = 0;
  std::int64_t saved_ = -1;  // steps done at the newest checkpoint
  double flops_per_token_ = 0, peak_flops_ = 0;
};

Status Run::everything() {
  using Part = Status (Run::*)();
  for (const Part part : {&Run::open_data, &Run::make_engine, &Run::begin_weights,
                          &Run::say_what_runs, &Run::steps, &Run::finish})
    if (const Status status = (this->*part)(); !status.ok()) return status;
  if (stopped_) outcome_.ending = Ending::stopped;
  return {};
}

Status Run::open_data() {
  auto data = RunData::open(config_);
  if (!data.ok()) return data.status();
  data_ = std::move(*data);
  return {};
}

Status Run::make_engine() {
  auto model = model_of(config_);
  if (!model.ok()) return model.status();
  if (const Status status = data_->corpus().check_vocabulary(model->vocabulary); !status.ok())
    return status;
  auto options = engine_options(config_, *model, world_.size());
  if (!options.ok()) return options.status();
  auto engine = Engine::make(world_, *options);
  if (!engine.ok()) return engine.status();
  engine_ = std::move(*engine);
  const EngineOptions& made = engine_->options();
  flops_per_token_ =
      flops_per_token(static_cast<double>(count_active_parameters(*model)),
                      static_cast<double>(model->layers), static_cast<double>(model->heads),
                      static_cast<double>(model->head_size), static_cast<double>(made.sequence));
  auto peak = measured_peak(*engine_, world_);
  if (!peak.ok()) return peak.status();
  peak_flops_ = *peak;
  if (config_.checkpoint.dir.empty()) return {};
  checkpoints_ = std::make_unique<CheckpointWriter>(
      *engine_, CheckpointOptions{config_.checkpoint.dir, config_.checkpoint.keep,
                                  config_.checkpoint.async, to_toml(config_)});
  return {};
}

// Ranks that see different folders would each begin with weights of their own.
Status Run::agree_on(const std::string& checkpoint) {
  std::int64_t step = -1;  // none
  if (!checkpoint.empty()) {
    auto state = read_checkpoint_state(checkpoint);
    if (!state.ok()) return state.status().with_context("resuming");
    step = state->step;
  }
  std::int64_t ends[] = {step, -step};
  const Status status = world_.all_reduce(std::span<std::int64_t>(ends), ReduceOp::max);
  if (!status.ok()) return status.with_context("agreeing where to begin");
  if (ends[0] == -ends[1]) return {};
  const auto named = [](std::int64_t at) {
    return at < 0 ? std::string("none") : fmt::format("that of step {}", at);
  };
  return Status(StatusCode::invalid_argument,
                fmt::format("ranks see different checkpoints: this one {}, others from {} to {}; "
                            "checkpoint.dir must be a folder that all of them share",
                            named(step), named(-ends[1]), named(ends[0])));
}

// From a checkpoint, from a model's files, or drawn.
Status Run::begin_weights() {
  const std::string& resume = config_.checkpoint.resume;
  std::string from = resume == "auto"    ? newest_checkpoint(config_.checkpoint.dir)
                     : resume == "never" ? std::string()
                                         : resume;
  if (const Status status = agree_on(from); !status.ok()) return status;
  if (!from.empty()) {
    auto state = load_checkpoint(from, *engine_);
    if (!state.ok()) return state.status().with_context("resuming");
    first_step_ = saved_ = state->step;
    if (is_first()) fmt::print("resuming after step {} from {}\n", first_step_, from);
    return {};
  }
  if (config_.model.hf.empty() || !config_.model.load_weights)
    return engine_->initialise(static_cast<std::uint64_t>(config_.train.seed));
  auto folder = WeightFolder::open(config_.model.hf);
  if (!folder.ok()) return folder.status();
  Status status;
  engine_->visit_masters([&](const MasterPlace& place) {
    if (status.ok())
      status = load_range(*folder, engine_->options().model, *place.parameter, place.begin,
                          place.begin + place.value.count(), place.value);
  });
  return status.ok() ? engine_->publish() : status;
}

Status Run::say_what_runs() {
  auto reports = Reports::make(config_, *engine_, first_step_);
  if (!reports.ok()) return reports.status();
  reports_ = std::move(*reports);
  if (!is_first()) return {};
  const EngineOptions& options = engine_->options();
  fmt::print("model: {} parameters, {} layers, hidden {}, vocabulary {}, {}\n",
             format_count(static_cast<double>(options.model.parameter_count())),
             options.model.layers, options.model.hidden, options.model.vocabulary,
             to_string(options.type));
  fmt::print("layout: {}, zero {}, {} over {}\n", options.mesh.to_string(),
             static_cast<int>(options.data.zero), engine_->schedule().name,
             world_.transport_name());
  fmt::print(
      "data: {} tokens to train on, {} held out; a step has {} sequences of {} in {} "
      "micro-batches\n",
      format_count(static_cast<double>(data_->corpus().train().size())),
      format_count(static_cast<double>(data_->corpus().validation().size())),
      config_.train.global_batch, options.sequence, options.micro_batches);
  fmt::print("peak: {:.1f} GFLOP/s of each rank, measured with {}\n", peak_flops_ / 1e9,
             options.gemm);
  return {};
}

Status Run::steps() {
  for (std::int64_t step = first_step_; step < config_.train.steps && !stopped_; ++step) {
    if (const Status status = one_step(step); !status.ok())
      return status.with_context(fmt::format("step {}", step));
    const std::int64_t done = step + 1;
    if (checkpoints_)
      if (const Status status = checkpoints_->poll(); !status.ok()) return status;
    if (config_.checkpoint.every > 0 && done % config_.checkpoint.every == 0)
      if (const Status status = save(done); !status.ok()) return status;
  }
  return {};
}

Status Run::one_step(std::int64_t step) {
  const EngineOptions& options = engine_->options();
  engine_->timeline().clear_exposed();
  const double begin_us = Timeline::now_us();
  StepInput with = data_->step(step, options.micro_batches);
  with.wants_stop = stop_ && stop_->load();
  auto result = engine_->step(with);
  if (!result.ok()) return result.status();
  diverged_ = !std::isfinite(result->loss) || (result->skipped && !options.scales_loss);
  if (diverged_)
    return Status(StatusCode::internal,
                  fmt::format("loss {} with a gradient of norm {}: the run diverged; try a smaller "
                              "learning rate, or resume from a checkpoint before it",
                              result->loss, result->gradient_norm));
  stopped_ = result->wants_stop;

  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = outcome_.loss = result->loss;
  metrics.learning_rate = with.learning_rate;
  metrics.gradient_norm = result->gradient_norm;
  metrics.seconds = (Timeline::now_us() - begin_us) / 1e6;
  const auto tokens = static_cast<double>(config_.train.global_batch * options.sequence);
  metrics.tokens_per_second = tokens / metrics.seconds;
  metrics.tokens = (step + 1) * config_.train.global_batch * options.sequence;
  metrics.mfu =
      utilisation(flops_per_token_, metrics.tokens_per_second, world_.size(), peak_flops_);
  metrics.exposed_communication = engine_->timeline().exposed_us() / 1e6 / metrics.seconds;
  if (options.model.experts > 0) metrics.more.emplace_back("balance_loss", result->balance_loss);
  if (options.scales_loss) metrics.more.emplace_back("loss_scale", result->loss_scale);
  const bool asks = config_.train.eval_every > 0 && (step + 1) % config_.train.eval_every == 0;
  if (asks && data_->validation()) {
    auto loss = validate(config_.train.eval_batches * config_.train.global_batch);
    if (!loss.ok()) return loss.status();
    metrics.more.emplace_back("validation_loss", *loss);
    reports_->note(fmt::format("step {}: validation loss {:.4f}, {:.4f} bits per token", step + 1,
                               *loss, *loss * kBitsPerNat));
  }
  outcome_.steps = step + 1;
  if (step == first_step_)
    if (const Status status = reports_->memory(); !status.ok()) return status;
  return reports_->step(metrics);
}

Status Run::save(std::int64_t steps_done) {
  if (!checkpoints_ || saved_ == steps_done) return {};
  CheckpointState state;
  state.step = steps_done;
  state.optimizer_steps = engine_->steps_done();
  state.loss_scaler = engine_->loss_scaler().state();
  state.layout = engine_->options().mesh.to_string();
  state.type = std::string(to_string(engine_->options().type));
  state.optimizer = optimizer_name(engine_->options().optimizer.kind);
  state.moments = static_cast<int>(moment_count(engine_->options().optimizer));
  saved_ = steps_done;
  return checkpoints_->begin(state);
}

Status Run::finish() {
  const std::int64_t done = std::max(outcome_.steps, first_step_);
  if (checkpoints_) {
    if (const Status status = save(done); !status.ok()) return status;
    if (const Status status = checkpoints_->finish(); !status.ok()) return status;
    if (!checkpoints_->newest().empty()) reports_->note("checkpoint: " + checkpoints_->newest());
  }
  if (outcome_.steps == 0 && first_step_ > 0)
    reports_->note(fmt::format("all {} steps are done already: nothing was trained", first_step_));
  if (stopped_) reports_->note(fmt::format("stopped after step {}, as asked", done));
  if (!stopped_ && data_->validation() && config_.train.eval_every > 0)
    if (const Status status = compare_with_counts(); !status.ok()) return status;
  return reports_->finish();
}

// The mean loss of the first `rows` held-out rows, or all where there are fewer. They are added up
// by global batches, and within one by micro-batches' numbers, as a step's are: so the sum's bits
// do not depend on how many ranks there are. The last round may be shorter: zeros change no sum.
Result<double> Run::validate(std::int64_t rows) {
  const std::int64_t dp = engine_->options().mesh.dp();
  const std::int64_t all = std::min(rows, data_->validation()->windows());
  double sum = 0;
  std::int64_t targets = 0;
  for (std::int64_t row = 0; row < all; row += config_.train.global_batch) {
    const std::int64_t here = std::min(config_.train.global_batch, all - row);
    const std::int64_t at_once = config_.train.micro_batch * dp;
    const std::int64_t micro_batches = (here + at_once - 1) / at_once * dp;
    const StepInput with = data_->validation_rows(row, micro_batches);
    auto loss = engine_->evaluate(with, micro_batches);
    if (!loss.ok()) return loss;
    sum += *loss * static_cast<double>(with.targets);
    targets += with.targets;
  }
  return sum / static_cast<double>(targets);
}

// All that was held out, against the simplest model of text that is worth beating.
Status Run::compare_with_counts() {
  auto loss = validate(data_->validation()->windows());
  if (!loss.ok()) return loss.status();
  outcome_.validation_loss = *loss;
  if (!is_first()) return {};
  reports_->note(fmt::format("held out, all {} tokens: loss {:.4f}, {:.4f} bits per token",
                             data_->corpus().validation().size(), *loss, *loss * kBitsPerNat));
  if (data_->corpus().vocabulary_bound() > 256 || data_->corpus().train().size() > kCountedBytesMax)
    return {};
  auto counts = train_count_model(data_->corpus());
  if (!counts.ok()) return counts.status();
  auto bits = bits_per_byte(*counts, data_->corpus(), data_->corpus().validation());
  if (!bits.ok()) return bits.status();
  reports_->note(
      fmt::format("the same by an order-2 count model of the same text: {:.4f} bits per "
                  "byte",
                  *bits));
  return {};
}

}  // namespace

RunOutcome train(const RunConfig& run, Communicator& world, const std::atomic<bool>* stop) {
  return Run(run, world, stop).outcome();
}

Ending ending_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::ok:
      return Ending::complete;
    case StatusCode::invalid_argument:
    case StatusCode::unsupported:
      return Ending::refused;
    case StatusCode::timeout:
    case StatusCode::peer_lost:
    case StatusCode::aborted:
    case StatusCode::revoked:
    case StatusCode::mismatch:
      return Ending::lost;
    default:
      return Ending::failed;
  }
}

}  // namespace tutti::training
