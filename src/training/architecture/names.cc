// names.cc: see names.hpp.
#include "training/architecture/names.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <utility>

namespace tutti::training {
namespace {

constexpr std::string_view kLayers = "model.layers.";

// One parameter of GPT-2, inside a layer or outside.
struct Rule {
  std::string_view ours, theirs;
  bool transposed = false;
  std::int64_t piece = 0, pieces = 1;
};

constexpr Rule kGpt2Layer[] = {
    {"input_layernorm.weight", "ln_1.weight"},
    {"input_layernorm.bias", "ln_1.bias"},
    {"self_attn.q_proj.weight", "attn.c_attn.weight", true, 0, 3},
    {"self_attn.k_proj.weight", "attn.c_attn.weight", true, 1, 3},
    {"self_attn.v_proj.weight", "attn.c_attn.weight", true, 2, 3},
    {"self_attn.q_proj.bias", "attn.c_attn.bias", false, 0, 3},
    {"self_attn.k_proj.bias", "attn.c_attn.bias", false, 1, 3},
    {"self_attn.v_proj.bias", "attn.c_attn.bias", false, 2, 3},
    {"self_attn.o_proj.weight", "attn.c_proj.weight", true},
    {"self_attn.o_proj.bias", "attn.c_proj.bias"},
    {"post_attention_layernorm.weight", "ln_2.weight"},
    {"post_attention_layernorm.bias", "ln_2.bias"},
    {"mlp.up_proj.weight", "mlp.c_fc.weight", true},
    {"mlp.up_proj.bias", "mlp.c_fc.bias"},
    {"mlp.down_proj.weight", "mlp.c_proj.weight", true},
    {"mlp.down_proj.bias", "mlp.c_proj.bias"},
};

constexpr Rule kGpt2Outside[] = {
    {"model.embed_tokens.weight", "wte.weight"},
    {"model.embed_positions.weight", "wpe.weight"},
    {"model.norm.weight", "ln_f.weight"},
    {"model.norm.bias", "ln_f.bias"},
};

// A layer's parameter, taken apart: "model.layers.12.mlp.up_proj.weight".
struct LayerName {
  std::int64_t layer;
  std::string_view rest;
};

std::optional<LayerName> layer_name(std::string_view name) {
  if (name.substr(0, kLayers.size()) != kLayers) return std::nullopt;
  name.remove_prefix(kLayers.size());
  std::int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto digits = static_cast<std::size_t>(end - name.data());
  const bool plain = digits == 1 || (digits > 1 && name[0] != '0' && name[0] != '-');
  if (error != std::errc() || !plain || digits >= name.size() || name[digits] != '.')
    return std::nullopt;
  return LayerName{layer, name.substr(digits + 1)};
}

FilePlace place_by(const Rule& rule, const std::string& inside) {
  const std::string bare = inside + std::string(rule.theirs);
  return {"transformer." + bare, bare, rule.transposed, rule.piece, rule.pieces};
}

std::optional<FilePlace> gpt2_place(const ModelConfig& config, std::string_view parameter) {
  if (parameter == "lm_head.weight") return FilePlace{"lm_head.weight", "lm_head.weight"};
  for (const Rule& rule : kGpt2Outside)
    if (rule.ours == parameter) return place_by(rule, "");
  const std::optional<LayerName> name = layer_name(parameter);
  if (!name || name->layer >= config.layers) return std::nullopt;
  for (const Rule& rule : kGpt2Layer)
    if (rule.ours == name->rest) return place_by(rule, fmt::format("h.{}.", name->layer));
  return std::nullopt;
}

std::optional<FilePlace> llama_place(const ModelConfig& config, std::string_view parameter) {
  std::vector<NamedShape> known = shapes_outside_layers(config);
  if (const std::optional<LayerName> name = layer_name(parameter);
      name && name->layer < config.layers)
    known = shapes_of_layer(config, name->layer);
  for (const NamedShape& weight : known) {
    if (weight.name != parameter) continue;
    constexpr std::string_view kModel = "model.";
    const bool inside = parameter.substr(0, kModel.size()) == kModel;
    return FilePlace{weight.name, weight.name.substr(inside ? kModel.size() : 0)};
  }
  return std::nullopt;
}

// Collects parameters whose names begin alike.
class Shapes {
 public:
  explicit Shapes(std::string prefix) : prefix_(std::move(prefix)) {}

  void add(std::string_view name, const Shape& shape) {
    made_.push_back({prefix_ + std::string(name), shape});
  }
  void add_norm(const std::string& name, const ModelConfig& config) {
    add(name + ".weight", {config.hidden});
    if (config.architecture == Architecture::gpt2) add(name + ".bias", {config.hidden});
  }
  std::vector<NamedShape> take() { return std::move(made_); }

 private:
  std::string prefix_;
  std::vector<NamedShape> made_;
};

void add_attention(Shapes& shapes, const ModelConfig& config) {
  const bool biased = config.architecture == Architecture::gpt2;
  const std::int64_t queries = config.heads * config.head_size;
  const std::int64_t keys = config.kv_heads * config.head_size;
  shapes.add("self_attn.q_proj.weight", {queries, config.hidden});
  shapes.add("self_attn.k_proj.weight", {keys, config.hidden});
  shapes.add("self_attn.v_proj.weight", {keys, config.hidden});
  if (biased) {
    shapes.add("self_attn.q_proj.bias", {queries});
    shapes.add("self_attn.k_proj.bias", {keys});
    shapes.add("self_attn.v_proj.bias", {keys});
  }
  shapes.add("self_attn.o_proj.weight", {config.hidden, queries});
  if (biased) shapes.add("self_attn.o_proj.bias", {config.hidden});
}

void add_mlp(Shapes& shapes, const ModelConfig& config) {
  const Shape up = {config.intermediate, config.hidden},
              down = {config.hidden, config.intermediate};
  switch (config.architecture) {
    case Architecture::llama:
      shapes.add("mlp.gate_proj.weight", up);
      shapes.add("mlp.up_proj.weight", up);
      shapes.add("mlp.down_proj.weight", down);
      break;
    case Architecture::gpt2:
      shapes.add("mlp.up_proj.weight", up);
      shapes.add("mlp.up_proj.bias", {config.intermediate});
      shapes.add("mlp.down_proj.weight", down);
      shapes.add("mlp.down_proj.bias", {config.hidden});
      break;
    case Architecture::mixtral:
      shapes.add("block_sparse_moe.gate.weight", {config.experts, config.hidden});
      for (std::int64_t expert = 0; expert < config.experts; ++expert) {
        const std::string name = fmt::format("block_sparse_moe.experts.{}.", expert);
        shapes.add(name + "w1.weight", up);
        shapes.add(name + "w2.weight", down);
        shapes.add(name + "w3.weight", up);
      }
      break;
  }
}

// Insertions, deletions and replacements that make one of the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];  // of the row before
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<NamedShape> shapes_of_layer(const ModelConfig& config, std::int64_t layer) {
  Shapes shapes(fmt::format("{}{}.", kLayers, layer));
  shapes.add_norm("input_layernorm", config);
  add_attention(shapes, config);
  shapes.add_norm("post_attention_layernorm", config);
  add_mlp(shapes, config);
  return shapes.take();
}

std::vector<NamedShape> shapes_outside_layers(const ModelConfig& config) {
  Shapes shapes("");
  shapes.add("model.embed_tokens.weight", {config.vocabulary, config.hidden});
  if (config.architecture == Architecture::gpt2)
    shapes.add("model.embed_positions.weight", {config.positions, config.hidden});
  shapes.add_norm("model.norm", config);
  if (!config.tied) shapes.add("lm_head.weight", {config.vocabulary, config.hidden});
  return shapes.take();
}

std::vector<NamedShape> parameter_shapes(const ModelConfig& config) {
  std::vector<NamedShape> outside = shapes_outside_layers(config);
  // The embeddings come before the layers, the norm and the head after them.
  const auto middle = std::find_if(outside.begin(), outside.end(), [](const NamedShape& weight) {
    return weight.name == "model.norm.weight";
  });
  std::vector<NamedShape> all(outside.begin(), middle);
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    for (NamedShape& weight : shapes_of_layer(config, layer)) all.push_back(std::move(weight));
  all.insert(all.end(), middle, outside.end());
  return all;
}

Shape FilePlace::file_shape(const Shape& parameter) const {
  if (parameter.rank() == 0) return parameter;
  Shape shape = parameter;
  shape[0] *= pieces;
  if (transposed) std::swap(shape[0], shape[1]);
  return shape;
}

Result<FilePlace> file_place(const ModelConfig& config, std::string_view parameter) {
  if (config.tied && parameter == "lm_head.weight") parameter = "model.embed_tokens.weight";
  std::optional<FilePlace> place = config.architecture == Architecture::gpt2
                                       ? gpt2_place(config, parameter)
                                       : llama_place(config, parameter);
  if (place) return *place;
  std::vector<std::string> names;
  for (NamedShape& weight : parameter_shapes(config)) names.push_back(std::move(weight.name));
  return Status(StatusCode::invalid_argument,
                fmt::format("this model has no parameter \"{}\"; nearest: {}", parameter,
                            nearest_text(parameter, std::move(names))));
}

std::vector<std::string> nearest_first(std::string_view wanted, std::vector<std::string> names) {
  constexpr std::size_t kLongest = 256;
  std::vector<std::pair<std::size_t, std::string>> ranked;
  ranked.reserve(names.size());
  for (std::string& name : names) {
    const bool read = name.size() <= kLongest && wanted.size() <= kLongest;
    const std::size_t far = read ? distance(wanted, name) : ~std::size_t{0};
    ranked.emplace_back(far, std::move(name));
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  names.clear();
  for (auto& [far, name] : ranked) names.push_back(std::move(name));
  return names;
}

std::string nearest_text(std::string_view wanted, std::vector<std::string> names,
                         std::size_t count) {
  std::string text;
  for (const std::string& name : nearest_first(wanted, std::move(names))) {
    if (count-- == 0) break;
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

}  // namespace tutti::training
