// Configs: published models' numbers, Hugging Face's config.json there and back, what is refused
// and how it is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "training/architecture/bounded_json.hpp"
#include "training/architecture/config.hpp"
#include "training/architecture/names.hpp"
#include "training/architecture/presets.hpp"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

ModelConfig preset(std::string_view name) { return model_preset(name).value(); }

// What transformers would write for small models, in its own words.
Json llama_json() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 48,
    "initializer_range": 0.03, "intermediate_size": 80, "max_position_embeddings": 96,
    "mlp_bias": false, "model_type": "llama", "num_attention_heads": 6, "num_hidden_layers": 3,
    "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "float32",
    "transformers_version": "4.40.0", "use_cache": true, "vocab_size": 99})");
}

Json gpt2_json() {
  return Json::parse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 24, "n_head": 3, "n_inner": null,
    "n_layer": 2, "n_positions": 32, "scale_attn_weights": true, "vocab_size": 50})");
}

Json mixtral_json() {
  return Json::parse(R"({
    "architectures": ["MixtralForCausalLM"], "hidden_act": "silu", "hidden_size": 32,
    "intermediate_size": 40, "max_position_embeddings": 64, "model_type": "mixtral",
    "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "num_local_experts": 5, "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "router_jitter_noise": 0.0,
    "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 77})");
}

Status failure(const Json& json) { return parse_model_config(json.dump()).status(); }

TEST(ModelPreset, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(preset("gpt2").parameter_count(), 124'439'808);
  EXPECT_EQ(preset("gpt2-medium").parameter_count(), 354'823'168);
  EXPECT_EQ(preset("llama-7b").parameter_count(), 6'738'415'616);
  EXPECT_EQ(preset("llama-3-8b").parameter_count(), 8'030'261'248);
  EXPECT_EQ(preset("llama-3-405b").parameter_count(), 405'853'388'800);
  EXPECT_EQ(preset("mixtral-8x7b").parameter_count(), 46'702'792'704);
  const double gpt3 = static_cast<double>(preset("gpt3-175b").parameter_count());
  EXPECT_NEAR(gpt3, 175e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(preset("bytes-3m").parameter_count()), 3e6, 0.5e6);
}

TEST(ModelPreset, TinyIsTheDefaultConfig) {
  EXPECT_EQ(preset("tiny"), ModelConfig());
  EXPECT_EQ(preset("tiny-gpt2").architecture, Architecture::gpt2);
  EXPECT_EQ(preset("tiny-mixtral").experts, 4);
}

TEST(ModelPreset, AllAreModelsAndSurviveTheirConfigJson) {
  for (const std::string& name : model_preset_names()) {
    const ModelConfig config = preset(name);
    EXPECT_TRUE(check(config).ok()) << name << ": " << check(config).to_string();
    const Result<ModelConfig> again = parse_model_config(model_config_json(config, "bfloat16"));
    ASSERT_TRUE(again.ok()) << name << ": " << again.status().to_string();
    EXPECT_EQ(*again, config) << name;
  }
}

TEST(ModelPreset, AMisspeltNameGetsTheNearestFirst) {
  const Status status = model_preset("lama-3-8b").status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("\"lama-3-8b\"; there are: llama-3-8b, "));
  EXPECT_THAT(status.message(), HasSubstr("gpt3-175b"));
}

TEST(ModelConfigJson, ReadsLlama) {
  const Result<ModelConfig> read = parse_model_config(llama_json().dump());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ModelConfig wanted;
  wanted.vocabulary = 99;
  wanted.hidden = 48;
  wanted.layers = 3;
  wanted.heads = 6;
  wanted.kv_heads = 2;
  wanted.head_size = 8;
  wanted.intermediate = 80;
  wanted.positions = 96;
  wanted.norm_epsilon = 1e-6;
  wanted.rope_theta = 500000;
  wanted.initial_deviation = 0.03;
  EXPECT_EQ(*read, wanted);
}

TEST(ModelConfigJson, ReadsGpt2WithItsDefaults) {
  const Result<ModelConfig> read = parse_model_config(gpt2_json().dump());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->architecture, Architecture::gpt2);
  EXPECT_EQ(read->intermediate, 96);
  EXPECT_EQ(read->head_size, 8);
  EXPECT_EQ(read->kv_heads, 3);
  EXPECT_TRUE(read->tied);
  Json wider = gpt2_json();
  wider["n_inner"] = 100;
  wider["tie_word_embeddings"] = false;
  wider["activation_function"] = "gelu_pytorch_tanh";
  EXPECT_EQ(parse_model_config(wider.dump())->intermediate, 100);
  EXPECT_FALSE(parse_model_config(wider.dump())->tied);
}

TEST(ModelConfigJson, ReadsMixtral) {
  const Result<ModelConfig> read = parse_model_config(mixtral_json().dump());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->architecture, Architecture::mixtral);
  EXPECT_EQ(read->experts, 5);
  EXPECT_EQ(read->experts_per_token, 2);
  EXPECT_EQ(read->balance_coefficient, 0.02);
  EXPECT_EQ(read->rope_theta, 1e6);
}

TEST(ModelConfigJson, TheModelTypeWillDoWithoutAClass) {
  Json json = gpt2_json();
  json.erase("architectures");
  EXPECT_TRUE(parse_model_config(json.dump()).ok());
  json.erase("model_type");
  EXPECT_THAT(failure(json).message(), HasSubstr("\"model_type\""));
}

TEST(ModelConfigJson, HeadsMayHaveTheirOwnSize) {
  Json json = llama_json();
  json["head_dim"] = 32;
  EXPECT_EQ(parse_model_config(json.dump())->head_size, 32);
  json["hidden_size"] = 50;
  EXPECT_TRUE(parse_model_config(json.dump()).ok());
  json["head_dim"] = nullptr;
  EXPECT_THAT(failure(json).message(), HasSubstr("\"head_dim\" is missing"));
}

TEST(ModelConfigJson, RopeMayLieInAnObjectOfItsOwn) {
  Json json = llama_json();
  json.erase("rope_theta");
  EXPECT_EQ(parse_model_config(json.dump())->rope_theta, 10000);
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 2e5}};
  EXPECT_EQ(parse_model_config(json.dump())->rope_theta, 2e5);
  json["rope_parameters"]["rope_theta"] = "big";
  EXPECT_EQ(failure(json).code(), StatusCode::corrupt_data);
  json["rope_parameters"] = {{"rope_type", "llama3"}, {"factor", 8.0}};
  EXPECT_EQ(failure(json).code(), StatusCode::unsupported);
  EXPECT_THAT(failure(json).message(), HasSubstr("\"rope_parameters\""));
}

TEST(ModelConfigJson, WhatWeDoNotComputeIsRefusedByName) {
  struct Case {
    Json base;
    const char* key;
    Json value;
  };
  const Case cases[] = {
      {llama_json(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {llama_json(), "rope_scaling", 2},
      {llama_json(), "attention_bias", true},
      {llama_json(), "mlp_bias", true},
      {llama_json(), "hidden_act", "gelu"},
      {llama_json(), "sliding_window", 32},
      {llama_json(), "quantization_config", {{"bits", 4}}},
      {mixtral_json(), "sliding_window", 63},
      {mixtral_json(), "router_jitter_noise", 0.1},
      {gpt2_json(), "activation_function", "relu"},
      {gpt2_json(), "scale_attn_weights", false},
      {gpt2_json(), "scale_attn_by_inverse_layer_idx", true},
      {gpt2_json(), "add_cross_attention", true},
      {llama_json(), "architectures", {"QwenForCausalLM"}},
  };
  for (const Case& one : cases) {
    Json json = one.base;
    ASSERT_TRUE(parse_model_config(json.dump()).ok()) << failure(json).to_string();
    json[one.key] = one.value;
    const Status status = failure(json);
    EXPECT_EQ(status.code(), StatusCode::unsupported) << one.key << ": " << status.to_string();
    const bool class_name = std::string_view(one.key) == "architectures";
    EXPECT_THAT(status.message(), HasSubstr(class_name ? "LlamaForCausalLM" : one.key));
  }
  Json wide = llama_json();
  wide["sliding_window"] = 96;
  EXPECT_TRUE(parse_model_config(wide.dump()).ok());
}

TEST(ModelConfigJson, MissingAndMistypedKeysAreNamed) {
  for (const auto& [base, keys] :
       {std::pair(llama_json(), std::vector{"vocab_size", "hidden_size", "num_hidden_layers",
                                            "num_attention_heads", "intermediate_size",
                                            "max_position_embeddings"}),
        std::pair(gpt2_json(), std::vector{"vocab_size", "n_embd", "n_layer", "n_head"}),
        std::pair(mixtral_json(),
                  std::vector{"num_local_experts", "num_experts_per_tok", "num_key_value_heads"})})
    for (const char* key : keys) {
      for (const Json& wrong :
           {Json(nullptr), Json("12"), Json(1.5), Json(18446744073709551615u)}) {
        Json json = base;
        json[key] = wrong;
        EXPECT_EQ(failure(json).code(), StatusCode::corrupt_data) << key << wrong;
        EXPECT_THAT(failure(json).message(), HasSubstr("\"" + std::string(key) + "\""));
      }
      Json json = base;
      json.erase(key);
      EXPECT_THAT(failure(json).message(), HasSubstr("\"" + std::string(key) + "\" is missing"));
    }
}

TEST(ModelConfigJson, TextIsBounded) {
  const std::string fits = llama_json().dump();
  EXPECT_TRUE(parse_model_config(fits + std::string(1000, ' ')).ok());
  const Status longer = parse_model_config(fits + std::string(std::size_t{1} << 20, ' ')).status();
  EXPECT_THAT(longer.message(), HasSubstr("more than 1048576"));
  const Status deep =
      parse_model_config("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}")
          .status();
  EXPECT_THAT(deep.message(), HasSubstr("deeper than 16"));
  const Status twice = parse_model_config(R"({"a": {"b": 1, "b": 2}})").status();
  EXPECT_THAT(twice.message(), HasSubstr("\"b\" is there twice"));
  EXPECT_THAT(parse_model_config("{\"a\": 1").status().message(), HasSubstr("not JSON at byte"));
  EXPECT_THAT(parse_model_config("[1]").status().message(), HasSubstr("not a JSON object"));
  EXPECT_EQ(parse_model_config("{\"a\": 1e999}").status().code(), StatusCode::corrupt_data);
  EXPECT_EQ(parse_model_config("{\"a\": \"\xff\"}").status().code(), StatusCode::corrupt_data);
}

TEST(ModelConfigJson, WritesWhatTransformersNeeds) {
  ModelConfig config = preset("tiny-mixtral");
  config.capacity_factor = 1.25;
  const Json json = Json::parse(model_config_json(config, "bfloat16"));
  EXPECT_EQ(json["architectures"], Json({"MixtralForCausalLM"}));
  EXPECT_EQ(json["model_type"], "mixtral");
  EXPECT_EQ(json["torch_dtype"], "bfloat16");
  EXPECT_EQ(json["num_local_experts"], 4);
  EXPECT_EQ(json["tie_word_embeddings"], false);
  EXPECT_EQ(*parse_model_config(json.dump()), config);
}

TEST(ModelConfigCheck, NamesTheEquationThatDoesNotHold) {
  struct Case {
    const char* preset;
    std::function<void(ModelConfig&)> spoil;
    const char* text;
  };
  const Case cases[] = {
      {"tiny", [](ModelConfig& c) { c.hidden = 0; }, "hidden is 0"},
      {"tiny", [](ModelConfig& c) { c.layers = -1; }, "layers is -1"},
      {"tiny", [](ModelConfig& c) { c.vocabulary = std::int64_t{1} << 40; }, "vocabulary is"},
      {"tiny", [](ModelConfig& c) { c.kv_heads = 3; }, "heads % kv_heads == 0"},
      {"tiny", [](ModelConfig& c) { c.head_size = 15; }, "head_size is 15"},
      {"tiny", [](ModelConfig& c) { c.experts = 2; }, "only mixtral"},
      {"tiny", [](ModelConfig& c) { c.norm_epsilon = 0; }, "norm_epsilon"},
      {"tiny", [](ModelConfig& c) { c.rope_theta = -1; }, "rope_theta"},
      {"tiny", [](ModelConfig& c) { c.initial_deviation = 1 / 0.0; }, "initial_deviation"},
      {"tiny-gpt2", [](ModelConfig& c) { c.kv_heads = 2; }, "kv_heads == heads"},
      {"tiny-gpt2", [](ModelConfig& c) { c.hidden = 65; }, "heads * head_size == hidden"},
      {"tiny-mixtral", [](ModelConfig& c) { c.experts = 0; }, "experts is 0"},
      {"tiny-mixtral", [](ModelConfig& c) { c.experts_per_token = 5; }, "experts_per_token is 5"},
      {"tiny-mixtral", [](ModelConfig& c) { c.capacity_factor = -1; }, "capacity_factor"},
      {"tiny-mixtral", [](ModelConfig& c) { c.layers = c.experts = 1 << 16; }, "layers * experts"},
      {"tiny-mixtral",
       [](ModelConfig& c) {
         c.layers = c.experts = 1 << 10;
         c.hidden = c.intermediate = 1 << 24;
       },
       "2^60"},
  };
  for (const Case& one : cases) {
    ModelConfig config = preset(one.preset);
    one.spoil(config);
    EXPECT_EQ(check(config).code(), StatusCode::invalid_argument) << one.text;
    EXPECT_THAT(check(config).message(), HasSubstr(one.text));
  }
}

TEST(ModelConfigCheck, IsPartOfReading) {
  Json json = llama_json();
  json["num_key_value_heads"] = 4;
  EXPECT_THAT(failure(json).message(), StartsWith("config.json: model: heads % kv_heads"));
}

TEST(ParameterNames, ListEveryParameterOnceAndInAll) {
  for (const std::string& name : model_preset_names()) {
    const ModelConfig config = preset(name);
    std::int64_t total = 0;
    for (const NamedShape& weight : parameter_shapes(config)) total += weight.shape.count();
    EXPECT_EQ(total, config.parameter_count()) << name;
  }
  const std::vector<NamedShape> tiny = parameter_shapes(preset("tiny"));
  EXPECT_EQ(tiny.front(), (NamedShape{"model.embed_tokens.weight", {256, 64}}));
  EXPECT_EQ(tiny[2], (NamedShape{"model.layers.0.self_attn.q_proj.weight", {64, 64}}));
  EXPECT_EQ(tiny[3], (NamedShape{"model.layers.0.self_attn.k_proj.weight", {32, 64}}));
  EXPECT_EQ(tiny.back(), (NamedShape{"lm_head.weight", {256, 64}}));
  EXPECT_EQ(tiny.size(), 3u + 4 * 9);
  EXPECT_EQ(parameter_shapes(preset("tiny-gpt2")).size(), 4u + 4 * 16);
  EXPECT_EQ(parameter_shapes(preset("tiny-mixtral")).size(), 3u + 4 * (7 + 3 * 4));
}

TEST(ParameterNames, KnowTheirPlaceInGpt2Files) {
  const ModelConfig config = preset("tiny-gpt2");
  const FilePlace key = file_place(config, "model.layers.3.self_attn.k_proj.weight").value();
  EXPECT_EQ(key.tensor, "transformer.h.3.attn.c_attn.weight");
  EXPECT_EQ(key.bare_tensor, "h.3.attn.c_attn.weight");
  EXPECT_TRUE(key.transposed);
  EXPECT_EQ(key.piece, 1);
  EXPECT_EQ(key.file_shape({64, 64}), Shape({64, 192}));
  EXPECT_EQ(file_place(config, "model.norm.bias")->tensor, "transformer.ln_f.bias");
  EXPECT_EQ(file_place(config, "lm_head.weight")->tensor, "transformer.wte.weight");  // tied
}

TEST(ParameterNames, UnknownOnesGetTheNearest) {
  for (const char* name : {"tiny", "tiny-gpt2", "tiny-mixtral"})
    for (const char* wrong : {"model.layers.1.mlp.up_prj.weight", "model.layers.4.x", "",
                              "model.layers.01.input_layernorm.weight", "model.layers..x",
                              "model.layers.-1.input_layernorm.weight", "model.layers.0"}) {
      const Status status = file_place(preset(name), wrong).status();
      EXPECT_EQ(status.code(), StatusCode::invalid_argument) << name << " " << wrong;
    }
  EXPECT_THAT(file_place(preset("tiny"), "model.layers.1.mlp.up_prj.weight").status().message(),
              HasSubstr("nearest: model.layers.1.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace tutti::training
