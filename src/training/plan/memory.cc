// memory.cc: formulas, each with its source in the header or beside it.
#include "training/plan/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "training/tensor/check.hpp"

namespace tutti::training {
namespace {

constexpr Recipe kRecipes[] = {
    {"f32", 4, 4, 8, "all in float32, two moments of Adam"},
    {"bf16", 2, 4, 12, "bfloat16 values; gradients, moments and a copy of the values in float32"},
    {"zero-fp16", 2, 2, 12, "the ZeRO paper: half values and gradients, float32 copy and moments"},
    {"megatron-fp16", 2, 2, 16, "as zero-fp16, with gradients in float32 besides"},
    {"megatron-bf16", 2, 4, 12, "Megatron: bfloat16 values, the rest float32"},
    {"megatron-fp32", 4, 4, 8, "Megatron: all in float32"},
    {"bf16-only", 2, 2, 4, "all in bfloat16, moments too; values lose small updates"},
    {"no-master", 2, 2, 8, "half values and gradients, float32 moments, no float32 copy"},
};

// Statistics and probabilities are float32 where activations are narrower.
double wide_bytes(const ActivationPlace& place) { return std::max(place.bytes_of_number, 4.0); }

std::int64_t share(std::int64_t whole, int ranks) { return (whole + ranks - 1) / ranks; }

// A rank has at least one head for keys and values, the same as its neighbours if there are fewer
// heads than ranks.
std::int64_t kv_share(const ModelConfig& config, int tp) {
  return std::max<std::int64_t>(config.kv_heads / tp, 1);
}

std::int64_t attention_parameters(const ModelConfig& config, int tp) {
  const std::int64_t query = config.heads / tp * config.head_size;
  const std::int64_t key_value = 2 * kv_share(config, tp) * config.head_size;
  const std::int64_t weights = (2 * query + key_value) * config.hidden;
  const bool biased = config.architecture == Architecture::gpt2;
  return weights + (biased ? query + key_value + config.hidden : 0);
}

std::int64_t mlp_parameters(const ModelConfig& config, int tp) {
  const std::int64_t inner = config.intermediate / tp;
  if (config.architecture == Architecture::gpt2)
    return 2 * config.hidden * inner + inner + config.hidden;
  return 3 * config.hidden * inner;
}

std::int64_t norm_parameters(const ModelConfig& config) {
  return config.architecture == Architecture::gpt2 ? 2 * config.hidden : config.hidden;
}

ParameterCount layer_parameters(const ModelConfig& config, int tp, int ep) {
  ParameterCount count;
  count.dense = attention_parameters(config, tp) + 2 * norm_parameters(config);
  if (config.architecture == Architecture::mixtral) {
    count.dense += config.experts * config.hidden;  // the router, whole on every rank
    count.experts = config.experts / ep * mlp_parameters(config, tp);
  } else {
    count.dense += mlp_parameters(config, tp);
  }
  return count;
}

// Numbers that the mlp of a layer, or an expert, keeps of each row. What goes into its last matrix
// comes of the activation function, and can be computed again.
double inner_numbers(const ModelConfig& config, int tp, Recompute recompute) {
  const double inner = static_cast<double>(config.intermediate) / tp;
  const int before = config.architecture == Architecture::gpt2 ? 1 : 2;
  return inner * (recompute == Recompute::none ? before + 1 : before);
}

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

Result<Recipe> find_recipe(std::string_view name) {
  std::string known;
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == name) return recipe;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", recipe.name);
  }
  return Status(StatusCode::invalid_argument,
                fmt::format("no memory recipe is called '{}'; there are {}", name, known));
}

StateBytes state_bytes(const Recipe& recipe, double parameters, int zero_stage, int shards) {
  TRAINING_CHECK(zero_stage >= 0 && zero_stage <= 3 && shards >= 1, "a stage of ZeRO, and ranks");
  const auto kept = [&](int bytes, int sharded_from) {
    return parameters * bytes / (zero_stage >= sharded_from ? shards : 1);
  };
  return {kept(recipe.value, 3), kept(recipe.gradient, 2), kept(recipe.optimizer, 1)};
}

double zero_volume(int zero_stage) { return zero_stage == 3 ? 3 : 2; }

double gpt_activation_bytes(const LayerShape& shape, int tp, bool sequence_parallel,
                            Recompute recompute) {
  const double unit = shape.sequence * shape.batch * shape.hidden;
  // What the tensor-parallel ranks do not share unless the sequence is split among them: inputs of
  // norms and of the shared parts, and dropouts' masks.
  const double same = sequence_parallel ? 10.0 / tp : 10;
  if (recompute == Recompute::full) return 2 * unit;
  const double scores = 5 * shape.heads * shape.sequence / shape.hidden;
  return unit * (same + 24.0 / tp + (recompute == Recompute::selective ? 0 : scores / tp));
}

double mlp_activation_bytes(double layers, double width, double tokens, double bytes_of_number) {
  return layers * width * tokens * bytes_of_number;
}

double block_activation_bytes(const ModelConfig& config, const ActivationPlace& place,
                              Recompute recompute) {
  const double hidden = static_cast<double>(config.hidden);
  const double local = place.bytes_of_number * place.local_rows * hidden;
  if (recompute == Recompute::full) return local;

  const double heads = static_cast<double>(config.heads) / place.tp;
  const double kv_heads = static_cast<double>(kv_share(config, place.tp));
  // Queries, keys, values, and what attention gives; the norms' outputs, which linear layers keep.
  double numbers = 2 * (heads + kv_heads) * static_cast<double>(config.head_size);
  if (recompute == Recompute::none) numbers += 2 * hidden;
  const double inner = inner_numbers(config, place.tp, recompute);
  // A routed row's copy, what its expert keeps of it, and what the expert makes of it.
  const double routed = static_cast<double>(config.experts_per_token) * (inner + 2 * hidden);
  numbers += config.experts > 0 ? routed : inner;
  const double statistics = place.rows * heads + 2 * place.local_rows;
  // Twice local: what goes into the two norms.
  return place.bytes_of_number * place.rows * numbers + 2 * local + wide_bytes(place) * statistics;
}

double head_activation_bytes(const ModelConfig& config, const ActivationPlace& place) {
  const double numbers = static_cast<double>(config.hidden) * (place.rows + place.local_rows);
  const double logits = static_cast<double>(share(config.vocabulary, place.tp));
  return place.bytes_of_number * numbers + wide_bytes(place) * place.rows * logits;
}

ParameterCount count_parameters(const ModelConfig& config, const ModelPart& part, int tp, int ep) {
  ParameterCount count = layer_parameters(config, tp, ep);
  count.dense *= part.layers;
  count.experts *= part.layers;
  const std::int64_t table = share(config.vocabulary, tp) * config.hidden;
  if (part.has_embedding) {
    count.dense += table;
    if (config.architecture == Architecture::gpt2) count.dense += config.positions * config.hidden;
  }
  if (part.has_head) {
    count.dense += norm_parameters(config);
    if (config.tied && part.has_embedding)
      count.tied = table;
    else
      count.dense += table;
  }
  return count;
}

}  // namespace tutti::training
