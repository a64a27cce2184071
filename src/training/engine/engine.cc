// engine.cc: see engine.hpp.
#include "training/engine/engine.hpp"

#include <cmath>
#include <span>
#include <utility>

#include "training/engine/layout.hpp"
#include "training/model/initial.hpp"
#include "training/plan/pipeline_generators.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training {

// Of one member of a group: what the optimizer remembers of the elements that this rank changes.
struct Engine::Moments {
  Tensor first, second;
};

double tree_sum(std::span<const double> values) {
  if (values.empty()) return 0;
  if (values.size() == 1) return values[0];
  std::size_t left = 1;
  while (left * 2 < values.size()) left *= 2;
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

namespace {

// Of one rank there is nothing to order.
Result<PipelineSchedule> schedule_of(const EngineOptions& options) {
  if (options.own_schedule) return *options.own_schedule;
  return make_schedule(options.mesh.pp == 1 ? "1f1b" : options.schedule, options.mesh.pp,
                       static_cast<int>(options.micro_batches / options.mesh.dp()),
                       options.chunks_per_rank);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(Communicator& world, const EngineOptions& options) {
  if (const Status status = check_layout(options, world.size()); !status.ok()) return status;
  auto gemm = make_gemm(options.gemm);
  if (!gemm.ok()) return gemm.status();
  auto schedule = schedule_of(options);
  if (!schedule.ok()) return schedule.status();
  auto groups = make_groups(world, options.mesh, static_cast<int>(options.model.kv_heads));
  if (!groups.ok()) return groups.status();
  return std::unique_ptr<Engine>(
      new Engine(options, std::move(*groups), std::move(*gemm), std::move(*schedule)));
}

Engine::Engine(const EngineOptions& options, std::unique_ptr<Groups> groups,
               std::unique_ptr<Gemm> gemm, PipelineSchedule schedule)
    : options_(options),
      groups_(std::move(groups)),
      gemm_(std::move(gemm)),
      schedule_(std::move(schedule)),
      tp_("tp", groups_->tp, timeline_),
      ep_("ep", groups_->ep, timeline_),
      context_{arena_, *gemm_, tp_, ep_, options_.type},
      scaler_(options_.loss_scaler) {
  context_.sequence_parallel = options_.sequence_parallel;
  context_.batch = options_.micro_batch_rows;
  context_.sequence = options_.sequence;
  context_.hidden = options_.model.hidden;
  make_stages();
}

Engine::~Engine() = default;

void Engine::make_stages() {
  const int rank = groups_->at.pp;
  std::vector<Stage*> stages;
  for (int chunk = 0; chunk < schedule_.chunks_per_rank; ++chunk) {
    const StageLayers layers =
        stage_layers(options_.model.layers, schedule_.stage_of(rank, chunk), schedule_.stages());
    stages_.push_back(
        std::make_unique<Stage>(options_.model, layers, options_.recompute, context_));
    stages.push_back(stages_.back().get());
  }
  data_ = std::make_unique<DataParallel>(stages, *groups_, options_.data, options_.type, arena_,
                                         timeline_);
  std::vector<UnitHooks*> hooks;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) hooks.push_back(&data_->hooks(stage));
  runner_ =
      std::make_unique<PipelineRunner>(rank, stages, hooks, groups_->links, context_, timeline_);
  const std::size_t moments = moment_count(options_.optimizer);
  data_->visit([&](ParameterGroup&, const Member& member) {
    const auto make = [&] {
      return Tensor::zeros(arena_, MemoryKind::optimizer, wide_type(options_.type),
                           {member.length});
    };
    moments_.push_back({moments > 0 ? make() : Tensor(), moments > 1 ? make() : Tensor()});
  });
}

Status Engine::initialise(std::uint64_t seed) {
  visit_masters([&](const MasterPlace& place) {
    tutti::training::initialise(*place.parameter, seed, place.begin,
                                place.begin + place.value.count(), place.value);
  });
  return publish();
}

void Engine::visit_masters(const std::function<void(const MasterPlace&)>& f) {
  std::size_t index = 0;
  data_->visit([&](ParameterGroup& group, const Member& member) {
    const Moments& moments = moments_[index++];
    MasterPlace place{member.parameter, member.begin, group.master(member), {}, false};
    for (const Tensor& moment : {moments.first, moments.second})
      if (!moment.empty()) place.moments.push_back(moment);
    place.answers = data_->answers_for(*member.parameter) && group.holder().number == 0;
    f(place);
  });
}

Status Engine::publish() { return data_->publish_values(); }

// ---- Micro-batches -----------------------------------------------------------------------------

std::int64_t Engine::micro_batches_here() const {
  return options_.micro_batches / options_.mesh.dp();
}

// Every layout adds gradients along one tree over these numbers. Where a rank adds its own
// micro-batches before the ranks add theirs, its numbers follow each other; where each micro-batch
// is added among the shard group first, that group's do.
std::int64_t Engine::number_of(std::int64_t j, std::int64_t here) const {
  const Mesh& mesh = options_.mesh;
  const Coordinates& at = groups_->at;
  if (options_.data.zero >= Zero::gradients)
    return (at.dp_replicate * here + j) * mesh.dp_shard + at.dp_shard;
  return (at.dp_replicate * mesh.dp_shard + at.dp_shard) * here + j;
}

Status Engine::make_micro_batches(const StepInput& input, std::int64_t count, double loss_scale,
                                  std::vector<MicroBatchData>& made) const {
  if (input.targets <= 0)
    return Status(StatusCode::invalid_argument, "a step without a single target that counts");
  const std::int64_t here = count / options_.mesh.dp();
  made.resize(static_cast<std::size_t>(here));
  for (std::int64_t j = 0; j < here; ++j) {
    MicroBatchData& data = made[static_cast<std::size_t>(j)];
    data.tokens.resize(static_cast<std::size_t>(context_.rows()));
    data.targets.resize(data.tokens.size());
    data.loss_scale = loss_scale / static_cast<double>(input.targets);
    input.fill(number_of(j, here), data.tokens, data.targets);
  }
  return {};
}

// All micro-batches' sums of losses, by number, on every rank. Each has one rank that knows it, so
// that adding zeros to it changes no bit.
Status Engine::share_losses(const std::vector<MicroBatchResult>& results, std::int64_t count,
                            bool wants_stop, Shared& shared) {
  const auto each = static_cast<std::size_t>(count);
  std::vector<double> all(2 * each + 1, 0.0);
  const auto here = static_cast<std::int64_t>(results.size());
  for (std::int64_t j = 0; j < here && groups_->at.tp == 0; ++j) {
    const auto number = static_cast<std::size_t>(number_of(j, here));
    all[number] = results[static_cast<std::size_t>(j)].loss.sum;
    all[number + each] = results[static_cast<std::size_t>(j)].balance_loss;
  }
  all.back() = wants_stop ? 1 : 0;
  const Status status = groups_->world->all_reduce(std::span<double>(all), ReduceOp::sum);
  const std::span<const double> known(all);
  shared.loss_sum = tree_sum(known.first(each));
  shared.balance =
      tree_sum(known.subspan(each, each)) / static_cast<double>(count * options_.model.layers);
  shared.wants_stop = all.back() > 0;
  return status.with_context("losses of the step");
}

// ---- A step ------------------------------------------------------------------------------------

Status Engine::first_failure() const {
  if (const Status status = tp_.status(); !status.ok()) return status;
  if (const Status status = ep_.status(); !status.ok()) return status;
  return data_->status();
}

Result<StepResult> Engine::step(const StepInput& input) {
  auto result = make_step(input);
  if (!result.ok()) data_->give_up();
  return result;
}

Result<StepResult> Engine::make_step(const StepInput& input) {
  StepResult result;
  result.loss_scale = options_.scales_loss ? scaler_.scale() : 1.0;
  std::vector<MicroBatchData> data;
  Status status = make_micro_batches(input, options_.micro_batches, result.loss_scale, data);
  if (!status.ok()) return status;
  context_.balance_scale = options_.model.balance_coefficient * result.loss_scale /
                           static_cast<double>(options_.micro_batches * options_.model.layers);
  data_->begin_step(micro_batches_here());

  std::vector<MicroBatchResult> results;
  status = runner_->run(schedule_, data, Purpose::learn, results);
  if (const Status failure = first_failure(); !failure.ok()) return failure;
  if (!status.ok()) return status;
  if (status = data_->finish_gradients(); !status.ok()) return status;

  auto norm = data_->gradient_norm();
  if (!norm.ok()) return norm.status();
  result.gradient_norm = *norm / result.loss_scale;
  const bool overflow = !std::isfinite(*norm);
  result.skipped = options_.scales_loss ? scaler_.update(overflow) : overflow;
  if (!result.skipped) {
    const bool clips = options_.clip > 0 && result.gradient_norm > options_.clip;
    update(input.learning_rate,
           (clips ? options_.clip / result.gradient_norm : 1.0) / result.loss_scale);
  }
  data_->clear_gradients();
  if (status = publish(); !status.ok()) return status;

  Shared shared;
  status = share_losses(results, options_.micro_batches, input.wants_stop, shared);
  if (!status.ok()) return status;
  result.loss = shared.loss_sum / static_cast<double>(input.targets);
  result.balance_loss = shared.balance;
  result.wants_stop = shared.wants_stop;
  return result;
}

void Engine::update(double learning_rate, double gradient_scale) {
  const Stretch stretch(timeline_, Lane::compute, "optimizer");
  const OptimizerStep step{++steps_done_, learning_rate, gradient_scale};
  std::size_t index = 0;
  data_->visit([&](ParameterGroup& group, const Member& member) {
    const Moments& moments = moments_[index++];
    OptimizerSpan span;
    span.value = group.master(member);
    span.gradient = group.gradient(member);
    span.first_moment = moments.first;
    span.second_moment = moments.second;
    span.decays = member.parameter->decays;
    tutti::training::update(options_.optimizer, step, span);
  });
}

namespace {

// Each stage's forwards, nothing else.
PipelineSchedule forward_only(const PipelineSchedule& like, int micro_batches) {
  PipelineSchedule schedule = like;
  schedule.name = "forward only";
  schedule.micro_batches = micro_batches;
  for (auto& actions : schedule.ranks) {
    actions.clear();
    for (int chunk = 0; chunk < like.chunks_per_rank; ++chunk)
      for (int j = 0; j < micro_batches; ++j) actions.push_back({Action::forward, chunk, j});
  }
  return schedule;
}

}  // namespace

Result<double> Engine::evaluate(const StepInput& input, std::int64_t micro_batches) {
  TRAINING_CHECK(micro_batches % options_.mesh.dp() == 0, "as many micro-batches on each rank");
  std::vector<MicroBatchData> data;
  Status status = make_micro_batches(input, micro_batches, 1.0, data);
  if (!status.ok()) return status;
  std::vector<MicroBatchResult> results;
  status = runner_->run(forward_only(schedule_, static_cast<int>(data.size())), data,
                        Purpose::evaluate, results);
  if (const Status failure = first_failure(); !failure.ok()) return failure;
  if (!status.ok()) return status;
  Shared shared;
  if (status = share_losses(results, micro_batches, false, shared); !status.ok()) return status;
  return shared.loss_sum / static_cast<double>(input.targets);
}

}  // namespace tutti::training
