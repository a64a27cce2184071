// peak.cc: see peak.hpp.
#include "training/trainer/peak.hpp"

#include <algorithm>
#include <span>

#include "training/architecture/names.hpp"

namespace tutti::training {

Result<double> measured_peak(Engine& engine, Communicator& world) {
  constexpr std::int64_t kSize = 384;
  constexpr int kTries = 6;
  const DataType type = engine.options().type;
  Arena arena;
  const auto matrix = [&] {
    return Tensor::zeros(arena, MemoryKind::activation, type, {kSize, kSize});
  };
  const Tensor a = matrix(), b = matrix(), c = matrix();
  if (const Status status = world.barrier(); !status.ok()) return status;
  double best_us = 1e300;
  for (int i = 0; i < kTries; ++i) {
    const double begin_us = Timeline::now_us();
    engine.gemm().multiply(a, b, c, false);
    best_us = std::min(best_us, Timeline::now_us() - begin_us);
  }
  double rate = 2.0 * kSize * kSize * kSize / (best_us * 1e-6);
  const Status status = world.all_reduce(std::span<double>(&rate, 1), ReduceOp::avg);
  if (!status.ok()) return status;
  return rate;
}

std::int64_t count_active_parameters(const ModelConfig& model) {
  std::int64_t count = 0;
  for (const NamedShape& named : parameter_shapes(model)) {
    const bool looked_up = named.name == "model.embed_tokens.weight" && !model.tied;
    if (looked_up || named.name == "model.embed_positions.weight") continue;
    const bool expert = named.name.find(".experts.") != std::string::npos;
    count += expert ? named.shape.count() * model.experts_per_token / model.experts
                    : named.shape.count();
  }
  return count;
}

}  // namespace tutti::training
