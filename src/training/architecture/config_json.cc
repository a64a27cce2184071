// config_json.cc: Hugging Face's config.json to a ModelConfig and back.
//
// Keys that change what the model computes, and that we do not compute, are errors; keys that only
// say how it was trained or how text is sampled (dropout, token ids, ...) are passed over.
#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "training/architecture/bounded_json.hpp"
#include "training/architecture/config.hpp"

namespace tutti::training {
namespace {

using Json = nlohmann::json;

struct ArchitectureNames {
  Architecture architecture;
  const char* class_name;
  const char* model_type;
};

constexpr ArchitectureNames kArchitectures[] = {
    {Architecture::llama, "LlamaForCausalLM", "llama"},
    {Architecture::gpt2, "GPT2LMHeadModel", "gpt2"},
    {Architecture::mixtral, "MixtralForCausalLM", "mixtral"},
};

std::string located(std::string_view text) { return fmt::format("config.json: {}", text); }

// Reads members of an object; the first failure stays and the rest of the reads do nothing.
// A null counts as absent, as it does for transformers.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  // Without `otherwise`, absence is a failure.
  void read(const char* key, std::int64_t& value, std::optional<std::int64_t> otherwise = {}) {
    const Json* member = present(key, value, otherwise);
    if (member == nullptr) return;
    const bool large = member->is_number_unsigned() &&
                       member->get<std::uint64_t>() >
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!member->is_number_integer() || large) return bad(key, "a whole number", *member);
    value = member->get<std::int64_t>();
  }

  void read(const char* key, double& value, std::optional<double> otherwise = {}) {
    const Json* member = present(key, value, otherwise);
    if (member == nullptr) return;
    if (!member->is_number()) return bad(key, "a number", *member);
    value = member->get<double>();
  }

  void read(const char* key, bool& value, std::optional<bool> otherwise = {}) {
    const Json* member = present(key, value, otherwise);
    if (member == nullptr) return;
    if (!member->is_boolean()) return bad(key, "true or false", *member);
    value = member->get<bool>();
  }

  // What we do not compute must be absent, or be the one value that we do.
  void must_be(const char* key, const Json& only) {
    const Json* member = find(key);
    if (member == nullptr || *member == only) return;
    fail(StatusCode::unsupported,
         fmt::format("\"{}\" is {}; only {} is supported", key, text_of(*member), only.dump()));
  }

  void must_be_absent(const char* key) {
    const Json* member = find(key);
    if (member == nullptr) return;
    fail(StatusCode::unsupported,
         fmt::format("\"{}\" is {}, which is not supported; only null is", key, text_of(*member)));
  }

  void fail(StatusCode code, std::string_view text) {
    if (status_.ok()) status_ = Status(code, located(text));
  }
  const Status& status() const { return status_; }

  static std::string text_of(const Json& value) {
    return shown(value.dump(-1, ' ', true, Json::error_handler_t::replace));
  }

 private:
  template <typename T>
  const Json* present(const char* key, T& value, const std::optional<T>& otherwise) {
    const Json* member = find(key);
    if (member != nullptr) return member;
    if (otherwise)
      value = *otherwise;
    else
      fail(StatusCode::corrupt_data, fmt::format("\"{}\" is missing", key));
    return nullptr;
  }

  void bad(const char* key, const char* wanted, const Json& value) {
    fail(StatusCode::corrupt_data,
         fmt::format("\"{}\" is {}, must be {}", key, text_of(value), wanted));
  }

  const Json& object_;
  Status status_;
};

Result<Architecture> architecture_of(const Json& whole) {
  const Fields fields(whole);
  const Json* classes = fields.find("architectures");
  const bool listed = classes != nullptr && classes->is_array() && classes->size() == 1;
  const Json* said = listed ? &classes->front() : fields.find("model_type");
  if (said == nullptr || !said->is_string())
    return Status(StatusCode::corrupt_data,
                  located("needs \"architectures\" with one name, or \"model_type\""));
  std::string known;
  for (const ArchitectureNames& names : kArchitectures) {
    const char* name = listed ? names.class_name : names.model_type;
    if (*said == name) return names.architecture;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return Status(StatusCode::unsupported, located(fmt::format("the model is a {}; there are: {}",
                                                             Fields::text_of(*said), known)));
}

// The newer form {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, the older
// {"rope_scaling": null}, and "rope_theta" beside either. Any real scaling is refused.
void read_rope(Fields& fields, double default_theta, ModelConfig& config) {
  fields.read("rope_theta", config.rope_theta, default_theta);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* rope = fields.find(key);
    if (rope == nullptr) continue;
    const char* type = rope->is_object() && rope->contains("rope_type") ? "rope_type" : "type";
    if (!rope->is_object() || rope->value(type, Json("default")) != "default") {
      fields.must_be_absent(key);
      continue;
    }
    Fields inside(*rope);
    inside.read("rope_theta", config.rope_theta, config.rope_theta);
    if (!inside.status().ok())
      fields.fail(inside.status().code(),
                  fmt::format("\"rope_theta\" in \"{}\" must be a number", key));
  }
}

void refuse_short_window(Fields& fields, const ModelConfig& config) {
  std::int64_t window = 0;
  bool used = true;
  fields.read("sliding_window", window, config.positions);
  fields.read("use_sliding_window", used, true);
  if (used && window < config.positions)
    fields.fail(StatusCode::unsupported,
                fmt::format("\"sliding_window\" is {}, less than \"max_position_embeddings\", {}; "
                            "attention within a window is not supported",
                            window, config.positions));
}

// What Llama and Mixtral have in common.
void read_llama_like(Fields& fields, double default_epsilon, double default_theta,
                     ModelConfig& config) {
  fields.read("vocab_size", config.vocabulary);
  fields.read("hidden_size", config.hidden);
  fields.read("num_hidden_layers", config.layers);
  fields.read("num_attention_heads", config.heads);
  fields.read("intermediate_size", config.intermediate);
  fields.read("max_position_embeddings", config.positions);
  fields.read("rms_norm_eps", config.norm_epsilon, default_epsilon);
  fields.read("initializer_range", config.initial_deviation, 0.02);
  fields.read("tie_word_embeddings", config.tied, false);
  const std::int64_t share = config.heads > 0 ? config.hidden / config.heads : 0;
  fields.read("head_dim", config.head_size, share);
  if (fields.find("head_dim") == nullptr && config.heads > 0 && config.hidden % config.heads != 0)
    fields.fail(StatusCode::corrupt_data,
                fmt::format("\"hidden_size\" {} is not a multiple of \"num_attention_heads\" {}, "
                            "and \"head_dim\" is missing",
                            config.hidden, config.heads));
  read_rope(fields, default_theta, config);
  refuse_short_window(fields, config);
  fields.must_be("hidden_act", "silu");
  fields.must_be("attention_bias", false);
  fields.must_be("mlp_bias", false);
}

void read_llama(Fields& fields, ModelConfig& config) {
  read_llama_like(fields, 1e-6, 10000, config);
  fields.read("num_key_value_heads", config.kv_heads, config.heads);
}

void read_mixtral(Fields& fields, ModelConfig& config) {
  read_llama_like(fields, 1e-5, 1e6, config);
  fields.read("num_key_value_heads", config.kv_heads);
  fields.read("num_local_experts", config.experts);
  fields.read("num_experts_per_tok", config.experts_per_token);
  fields.read("router_aux_loss_coef", config.balance_coefficient, 0.001);
  fields.read("capacity_factor", config.capacity_factor, 0.0);
  double jitter = 0;
  fields.read("router_jitter_noise", jitter, 0.0);
  if (jitter != 0) fields.must_be("router_jitter_noise", 0.0);
}

// Without overflow for sizes that check() will refuse.
std::int64_t four_times(std::int64_t size) {
  return size > std::numeric_limits<std::int64_t>::max() / 4 ? size : 4 * size;
}

void read_gpt2(Fields& fields, ModelConfig& config) {
  fields.read("vocab_size", config.vocabulary);
  fields.read("n_embd", config.hidden);
  fields.read("n_layer", config.layers);
  fields.read("n_head", config.heads);
  fields.read("n_positions", config.positions, 1024);
  fields.read("n_inner", config.intermediate, four_times(config.hidden));
  fields.read("layer_norm_epsilon", config.norm_epsilon, 1e-5);
  fields.read("initializer_range", config.initial_deviation, 0.02);
  fields.read("tie_word_embeddings", config.tied, true);
  config.kv_heads = config.heads;
  config.head_size = config.heads > 0 ? config.hidden / config.heads : 0;
  const Json* activation = fields.find("activation_function");
  // Another name of the same function.
  if (activation == nullptr || *activation != "gelu_pytorch_tanh")
    fields.must_be("activation_function", "gelu_new");
  fields.must_be("scale_attn_weights", true);
  fields.must_be("scale_attn_by_inverse_layer_idx", false);
  fields.must_be("add_cross_attention", false);
}

using OrderedJson = nlohmann::ordered_json;

void write_gpt2(const ModelConfig& config, OrderedJson& object) {
  object["n_embd"] = config.hidden;
  object["n_layer"] = config.layers;
  object["n_head"] = config.heads;
  object["n_inner"] = config.intermediate;
  object["n_positions"] = config.positions;
  object["activation_function"] = "gelu_new";
  object["layer_norm_epsilon"] = config.norm_epsilon;
  // The class's own default is 50256.
  if (config.vocabulary <= 50256) object["bos_token_id"] = object["eos_token_id"] = nullptr;
}

void write_llama_like(const ModelConfig& config, OrderedJson& object) {
  object["hidden_size"] = config.hidden;
  object["intermediate_size"] = config.intermediate;
  object["num_hidden_layers"] = config.layers;
  object["num_attention_heads"] = config.heads;
  object["num_key_value_heads"] = config.kv_heads;
  object["head_dim"] = config.head_size;
  object["max_position_embeddings"] = config.positions;
  object["hidden_act"] = "silu";
  object["rms_norm_eps"] = config.norm_epsilon;
  object["rope_theta"] = config.rope_theta;
  if (config.architecture == Architecture::llama) {
    object["attention_bias"] = false;
    object["mlp_bias"] = false;
    return;
  }
  object["sliding_window"] = nullptr;
  object["num_local_experts"] = config.experts;
  object["num_experts_per_tok"] = config.experts_per_token;
  object["router_aux_loss_coef"] = config.balance_coefficient;
  if (config.capacity_factor != 0) object["capacity_factor"] = config.capacity_factor;
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view json) {
  const Result<Json> whole = parse_json_object(json, "config.json");
  if (!whole.ok()) return whole.status();
  const Result<Architecture> architecture = architecture_of(*whole);
  if (!architecture.ok()) return architecture.status();
  ModelConfig config;
  config.architecture = *architecture;
  Fields fields(*whole);
  switch (*architecture) {
    case Architecture::llama:
      read_llama(fields, config);
      break;
    case Architecture::gpt2:
      read_gpt2(fields, config);
      break;
    case Architecture::mixtral:
      read_mixtral(fields, config);
      break;
  }
  fields.must_be_absent("quantization_config");
  if (!fields.status().ok()) return fields.status();
  if (Status status = check(config); !status.ok()) return status.with_context("config.json");
  return config;
}

std::string model_config_json(const ModelConfig& config, std::string_view type) {
  OrderedJson object;
  for (const ArchitectureNames& names : kArchitectures) {
    if (names.architecture != config.architecture) continue;
    object["architectures"] = OrderedJson::array({names.class_name});
    object["model_type"] = names.model_type;
  }
  object["torch_dtype"] = type;
  object["vocab_size"] = config.vocabulary;
  if (config.architecture == Architecture::gpt2)
    write_gpt2(config, object);
  else
    write_llama_like(config, object);
  object["initializer_range"] = config.initial_deviation;
  object["tie_word_embeddings"] = config.tied;
  return object.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace tutti::training
