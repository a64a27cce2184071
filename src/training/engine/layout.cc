// layout.cc: see layout.hpp.
#include "training/engine/layout.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "training/engine/engine.hpp"

namespace tutti::training {
namespace {

Status wrong(std::string text) { return Status(StatusCode::invalid_argument, std::move(text)); }

Status divides(const char* whole, std::int64_t count, const char* parts, std::int64_t by) {
  if (count % by == 0) return {};
  return wrong(
      fmt::format("{} {} % {} {} = {}: it must divide", whole, count, parts, by, count % by));
}

Status check_tensor_parallel(const EngineOptions& options) {
  const ModelConfig& model = options.model;
  const std::int64_t tp = options.mesh.tp;
  if (tp == 1) return {};
  if (const Status s = divides("heads", model.heads, "tp", tp); !s.ok()) return s;
  if (const Status s = divides("intermediate", model.intermediate, "tp", tp); !s.ok()) return s;
  if (model.kv_heads % tp != 0 && tp % model.kv_heads != 0)
    return wrong(
        fmt::format("neither kv_heads {} % tp {} nor tp % kv_heads is 0", model.kv_heads, tp));
  if (!options.sequence_parallel) return {};
  return divides("tokens of a micro-batch", options.micro_batch_rows * options.sequence, "tp", tp);
}

Status check_pipeline(const EngineOptions& options) {
  const std::int64_t stages = std::int64_t{options.mesh.pp} * options.chunks_per_rank;
  if (options.mesh.pp == 1 && options.chunks_per_rank > 1)
    return wrong("virtual stages without a pipeline: pp is 1");
  if (stages <= options.model.layers) return {};
  return wrong(fmt::format("pp {} x virtual {} = {} stages, but the model has {} layers",
                           options.mesh.pp, options.chunks_per_rank, stages, options.model.layers));
}

Status check_experts(const EngineOptions& options) {
  if (options.mesh.ep == 1) return {};
  if (options.model.experts == 0)
    return wrong(fmt::format("ep {}, but the model has no experts", options.mesh.ep));
  return divides("experts", options.model.experts, "ep", options.mesh.ep);
}

}  // namespace

Status check_layout(const EngineOptions& options, int world) {
  if (const Status status = check(options.model); !status.ok()) return status;
  if (options.mesh.world() != world)
    return wrong(fmt::format("{}, but the world has {} ranks", options.mesh.to_string(), world));
  if (options.sequence > options.model.positions)
    return wrong(fmt::format("sequences of {} tokens, but the model has {} positions",
                             options.sequence, options.model.positions));
  if (const Status status = divides("micro-batches of a step", options.micro_batches,
                                    "data-parallel ranks", options.mesh.dp());
      !status.ok())
    return status;
  if (const Status status = check_tensor_parallel(options); !status.ok()) return status;
  if (const Status status = check_pipeline(options); !status.ok()) return status;
  return check_experts(options);
}

}  // namespace tutti::training
