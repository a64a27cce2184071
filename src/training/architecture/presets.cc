// presets.cc: models with their published numbers, and small ones of our own for tests and
// examples.
//
// Source  the config.json of each model on Hugging Face; Radford et al.: Language models are
//         unsupervised multitask learners (2019); Brown et al.: Language models are few-shot
//         learners (2020), table 2.1; Touvron et al.: LLaMA (2023); The Llama 3 herd of models
//         (2024), table 3; Jiang et al.: Mixtral of experts (2024).
#include "training/architecture/presets.hpp"

#include <fmt/core.h>

#include <string_view>

#include "training/architecture/config.hpp"
#include "training/architecture/names.hpp"

namespace tutti::training {
namespace {

ModelConfig tiny() { return {}; }

ModelConfig tiny_mixtral() {
  ModelConfig made;
  made.architecture = Architecture::mixtral;
  made.experts = 4;
  made.experts_per_token = 2;
  return made;
}

// About 3 million parameters over bytes: trains in minutes on a laptop.
ModelConfig bytes_3m() {
  ModelConfig made;
  made.hidden = 192;
  made.layers = 6;
  made.heads = 6;
  made.kv_heads = 3;
  made.head_size = 32;
  made.intermediate = 512;
  return made;
}

// GPT-2's family differs in these numbers only.
ModelConfig gpt(std::int64_t hidden, std::int64_t layers, std::int64_t heads,
                std::int64_t positions) {
  ModelConfig made;
  made.architecture = Architecture::gpt2;
  made.vocabulary = 50257;
  made.hidden = hidden;
  made.layers = layers;
  made.heads = made.kv_heads = heads;
  made.head_size = hidden / heads;
  made.intermediate = 4 * hidden;
  made.positions = positions;
  made.tied = true;
  return made;
}

ModelConfig tiny_gpt2() {
  ModelConfig made = gpt(64, 4, 4, 1024);
  made.vocabulary = 256;
  return made;
}

ModelConfig gpt2() { return gpt(768, 12, 12, 1024); }
ModelConfig gpt2_medium() { return gpt(1024, 24, 16, 1024); }
ModelConfig gpt3_175b() { return gpt(12288, 96, 96, 2048); }

ModelConfig llama_7b() {
  ModelConfig made;
  made.vocabulary = 32000;
  made.hidden = 4096;
  made.layers = 32;
  made.heads = made.kv_heads = 32;
  made.head_size = 128;
  made.intermediate = 11008;
  made.positions = 2048;
  made.norm_epsilon = 1e-6;
  return made;
}

ModelConfig llama_3_8b() {
  ModelConfig made;
  made.vocabulary = 128256;
  made.hidden = 4096;
  made.layers = 32;
  made.heads = 32;
  made.kv_heads = 8;
  made.head_size = 128;
  made.intermediate = 14336;
  made.positions = 8192;
  made.rope_theta = 500000;
  return made;
}

// As it was pre-trained, at 8192 positions; the published files stretch them by scaling.
ModelConfig llama_3_405b() {
  ModelConfig made = llama_3_8b();
  made.hidden = 16384;
  made.layers = 126;
  made.heads = 128;
  made.intermediate = 53248;
  return made;
}

ModelConfig mixtral_8x7b() {
  ModelConfig made = llama_3_8b();
  made.architecture = Architecture::mixtral;
  made.vocabulary = 32000;
  made.positions = 32768;
  made.rope_theta = 1e6;
  made.experts = 8;
  made.experts_per_token = 2;
  made.balance_coefficient = 0.02;
  return made;
}

struct Preset {
  std::string_view name;
  ModelConfig (*make)();
};

constexpr Preset kPresets[] = {
    {"tiny", tiny},
    {"tiny-gpt2", tiny_gpt2},
    {"tiny-mixtral", tiny_mixtral},
    {"bytes-3m", bytes_3m},
    {"gpt2", gpt2},
    {"gpt2-medium", gpt2_medium},
    {"llama-7b", llama_7b},
    {"llama-3-8b", llama_3_8b},
    {"llama-3-405b", llama_3_405b},
    {"mixtral-8x7b", mixtral_8x7b},
    {"gpt3-175b", gpt3_175b},
};

}  // namespace

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

Result<ModelConfig> model_preset(std::string_view name) {
  for (const Preset& preset : kPresets)
    if (preset.name == name) return preset.make();
  std::vector<std::string> names = model_preset_names();
  const std::size_t all = names.size();
  return Status(StatusCode::invalid_argument,
                fmt::format("there is no model \"{}\"; there are: {}", name,
                            nearest_text(name, std::move(names), all)));
}

}  // namespace tutti::training
