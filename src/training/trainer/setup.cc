// setup.cc: see setup.hpp.
#include "training/trainer/setup.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

#include "training/engine/layout.hpp"
#include "training/files/whole_file.hpp"
#include "training/model/weights.hpp"
#include "training/plan/pipeline_text.hpp"
#include "training/plan/pipeline_validator.hpp"

namespace tutti::training {
namespace {

MeshOptions mesh_options(const ParallelConfig& parallel, const ModelConfig& model) {
  MeshOptions options;
  options.pp = static_cast<int>(parallel.pp);
  options.dp_replicate = static_cast<int>(parallel.dp_replicate);
  options.dp_shard = static_cast<int>(parallel.dp_shard);
  options.tp = static_cast<int>(parallel.tp);
  options.ep = static_cast<int>(parallel.ep);
  options.cp = static_cast<int>(parallel.cp);
  options.experts = model.experts;
  return options;
}

RecomputePolicy recompute_of(const RecomputeConfig& config) {
  switch (config.kind) {
    case RecomputeConfig::Kind::none:
      return {Recompute::none, 1};
    case RecomputeConfig::Kind::selective:
      return {Recompute::selective, 1};
    case RecomputeConfig::Kind::full:
      return {Recompute::full, 1};
    case RecomputeConfig::Kind::every:
      return {Recompute::full, config.blocks};
  }
  return {};
}

DataParallelOptions data_options(const ParallelConfig& parallel, int pp) {
  DataParallelOptions options;
  options.zero = static_cast<Zero>(parallel.zero);
  options.overlap = parallel.overlap;
  options.bucket_bytes = static_cast<std::int64_t>(parallel.bucket_mb * (1 << 20));
  options.reshard = parallel.reshard_after_forward;
  // A pipeline's micro-batches would gather the same values again and again.
  if (pp > 1 && options.reshard == Reshard::automatic) options.reshard = Reshard::never;
  options.keep_last_block = parallel.keep_last_block;
  options.prefetch = static_cast<int>(parallel.prefetch);
  return options;
}

constexpr std::string_view kFile = "file:";
constexpr std::size_t kScheduleBytesMax = std::size_t{64} << 20;

// Whether a schedule is one of this pipeline and this step.
Status check_counts(const PipelineSchedule& schedule, const EngineOptions& options) {
  const auto wrong = [](std::string text) {
    return Status(StatusCode::invalid_argument, std::move(text));
  };
  if (schedule.rank_count() != options.mesh.pp)
    return wrong(fmt::format("{} lines, one for each pipeline rank, but parallel.pp = {}",
                             schedule.rank_count(), options.mesh.pp));
  if (schedule.chunks_per_rank != options.chunks_per_rank)
    return wrong(fmt::format("{} stages, {} on each rank, but parallel.virtual = {}",
                             schedule.stages(), schedule.chunks_per_rank, options.chunks_per_rank));
  const std::int64_t here = options.micro_batches / options.mesh.dp();
  if (schedule.micro_batches == here) return {};
  return wrong(fmt::format(
      "micro-batches 0 to {}, but each rank accumulates {} = global_batch / (micro_batch * "
      "data-parallel ranks)",
      schedule.micro_batches - 1, here));
}

// What "file:PATH" stands for. Errors  system_error; invalid_argument: all others, for the user
// wrote the file. All name it.
Result<PipelineSchedule> read_schedule(const std::string& path, const EngineOptions& options) {
  auto text = read_text_file(path, kScheduleBytesMax);
  if (!text.ok()) return text.status().with_context("parallel.schedule");
  auto schedule = parse_schedule_csv(path, *text);
  Status status = schedule.status();
  if (status.ok()) status = check_counts(*schedule, options);
  if (status.ok()) status = validate(*schedule);
  if (status.ok()) return schedule;
  return Status(StatusCode::invalid_argument,
                fmt::format("parallel.schedule: {}: {}", path, status.message()));
}

}  // namespace

Result<ModelConfig> model_of(const RunConfig& run) {
  auto model =
      run.model.hf.empty() ? model_preset(run.model.preset) : read_model_config(run.model.hf);
  if (model.ok()) model->capacity_factor = run.model.capacity_factor;
  return model;
}

Result<EngineOptions> engine_options(const RunConfig& run, const ModelConfig& model, int world) {
  auto mesh = make_mesh(mesh_options(run.parallel, model), world);
  if (!mesh.ok()) return mesh.status();
  auto accumulation = accumulation_steps(run.train, mesh->dp());
  if (!accumulation.ok()) return accumulation.status();
  EngineOptions options;
  options.model = model;
  options.mesh = *mesh;
  options.type = run.train.dtype;
  options.gemm = run.train.gemm;
  options.micro_batch_rows = run.train.micro_batch;
  options.sequence = run.data.seq_len;
  options.micro_batches = *accumulation * mesh->dp();
  options.sequence_parallel = run.parallel.sequence_parallel && mesh->tp > 1;
  options.schedule = run.parallel.schedule;
  options.chunks_per_rank = static_cast<int>(run.parallel.virtual_stages);
  options.recompute = recompute_of(run.memory.recompute);
  options.data = data_options(run.parallel, mesh->pp);
  options.optimizer = run.optim.optimizer;
  options.clip = run.optim.clip;
  options.scales_loss = run.train.dtype == DataType::float16;
  if (const Status status = check_layout(options, world); !status.ok()) return status;
  if (!options.schedule.starts_with(kFile)) return options;
  auto schedule = read_schedule(options.schedule.substr(kFile.size()), options);
  if (!schedule.ok()) return schedule.status();
  options.own_schedule = std::move(*schedule);
  return options;
}

CommunicatorOptions communicator_options(const RunConfig& run) {
  CommunicatorOptions options;
  options.transport = run.parallel.transport;
  options.algorithm = run.parallel.algorithm;
  options.reduce_order = run.train.deterministic ? "rank_tree" : "any";
  options.checksums = run.comm.checksums;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(run.comm.timeout_s * 1000));
  return options;
}

Result<int> ranks_of(const RunConfig& run) {
  constexpr std::int64_t kRanksMax = std::int64_t{1} << 30;  // times a degree, within 64 bits
  const ParallelConfig& p = run.parallel;
  const struct {
    const char* name;
    std::int64_t degree;
  } degrees[] = {
      {"pp", p.pp}, {"dp_replicate", p.dp_replicate}, {"dp_shard", p.dp_shard}, {"tp", p.tp}};
  std::int64_t product = 1;
  for (const auto& axis : degrees) {
    if (axis.degree == ParallelConfig::kRest)
      return Status(StatusCode::invalid_argument,
                    fmt::format("parallel.{} is -1 (the rest), so that the degrees do not say how "
                                "many ranks there are: set it, or pass --ranks",
                                axis.name));
    product *= axis.degree;
    if (product > kRanksMax)
      return Status(StatusCode::invalid_argument,
                    fmt::format("the degrees of [parallel] make more than {} ranks", kRanksMax));
  }
  return static_cast<int>(product);
}

}  // namespace tutti::training
