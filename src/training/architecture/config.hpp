// config.hpp: the shape of a model: what a Hugging Face config.json says, as a value.
//
// Knows nothing of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::training {

enum class Architecture : unsigned char {
  llama,    // RMSNorm, rotary positions, SwiGLU, grouped-query attention
  gpt2,     // LayerNorm with bias, learned positions, GELU (tanh), biases everywhere
  mixtral,  // llama with a mixture of experts in place of each MLP
};

struct ModelConfig {
  Architecture architecture = Architecture::llama;
  std::int64_t vocabulary = 256;
  std::int64_t hidden = 64;
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;  // divides heads
  std::int64_t head_size = 16;
  std::int64_t intermediate = 192;
  std::int64_t positions = 1024;  // the longest sequence; rows of gpt2's position table
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  double initial_deviation = 0.02;
  bool tied = false;  // the head computes with the embedding's weight

  std::int64_t experts = 0;  // of mixtral
  std::int64_t experts_per_token = 2;
  double balance_coefficient = 0.001;  // router_aux_loss_coef
  double capacity_factor = 0;  // 0: dropless; else tokens an expert takes, by its fair share

  std::int64_t parameter_count() const;  // tied weights once

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Errors of both: corrupt_data or invalid_argument, naming the key or value; unsupported for an
// architecture or option that we do not compute.
Result<ModelConfig> parse_model_config(std::string_view json);  // a config.json's text
Result<ModelConfig> model_preset(std::string_view name);        // "tiny", "small", "gpt2", ...

// A config.json that Hugging Face's transformers reads. `type`: "float32", "bfloat16", ...
std::string model_config_json(const ModelConfig& config, std::string_view type);

// Whether this is a model at all: extents positive, heads % kv_heads == 0, ...
// Errors  invalid_argument with the equation that does not hold.
Status check(const ModelConfig& config);

}  // namespace tutti::training
