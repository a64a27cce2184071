// weight_samples.hpp: small models, their files made by hand, and what their parameters must be.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model_files.hpp"
#include "training/model/weights.hpp"
#include "training/tensor/arena.hpp"
#include "training/tensor/element.hpp"

namespace tutti::training::testing {

inline constexpr DataType kFloating[] = {DataType::float64, DataType::float32, DataType::float16,
                                         DataType::bfloat16};

inline Tensor tensor(DataType type, const Shape& shape) {
  Arena arena;  // its blocks outlive it
  return Tensor(arena, MemoryKind::parameter, type, shape);
}

inline std::vector<float> floats_of(const Tensor& t) {
  std::vector<float> made;
  visit(t.type(), [&](auto zero) {
    for (const auto value : t.span<decltype(zero)>())
      made.push_back(static_cast<float>(load(value)));
  });
  return made;
}

// Extents such that every one is another number and rows are cut into several tiles.
inline ModelConfig gpt2_config() {
  ModelConfig config;
  config.architecture = Architecture::gpt2;
  config.vocabulary = 7;
  config.hidden = 36;
  config.layers = 2;
  config.heads = config.kv_heads = 3;
  config.head_size = 12;
  config.intermediate = 70;
  config.positions = 5;
  config.tied = true;
  return config;
}

inline ModelConfig llama_config() {
  ModelConfig config;
  config.vocabulary = 7;
  config.hidden = 8;
  config.layers = 2;
  config.heads = 3;
  config.kv_heads = 1;
  config.head_size = 4;
  config.intermediate = 10;
  return config;
}

// A matrix of a file: no number is there twice.
struct FileMatrix {
  std::int64_t rows, columns;
  std::vector<float> values;

  float at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

class FileTensors {
 public:
  void add(const std::string& name, std::int64_t rows, std::int64_t columns) {
    FileMatrix& made = tensors_[name];
    made = {rows, columns, {}};
    for (std::int64_t i = 0; i < rows * columns; ++i) made.values.push_back(next_++);
    const std::string shape =
        columns == 1 ? std::to_string(rows) : std::to_string(rows) + "," + std::to_string(columns);
    file_.add(name, "F32", "[" + shape + "]", bytes_of_numbers(made.values));
  }
  const FileMatrix& operator[](const std::string& name) const { return tensors_.at(name); }
  std::string text() const { return file_.text(); }

 private:
  std::map<std::string, FileMatrix> tensors_;
  FileByHand file_;
  float next_ = 1;
};

// As GPT2LMHeadModel names and shapes them; `prefix` is "transformer." or nothing.
inline FileTensors gpt2_tensors(const ModelConfig& c, const std::string& prefix) {
  FileTensors made;
  made.add(prefix + "wte.weight", c.vocabulary, c.hidden);
  made.add(prefix + "wpe.weight", c.positions, c.hidden);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string h = prefix + "h." + std::to_string(layer) + ".";
    made.add(h + "ln_1.weight", c.hidden, 1);
    made.add(h + "ln_1.bias", c.hidden, 1);
    made.add(h + "attn.c_attn.weight", c.hidden, 3 * c.hidden);
    made.add(h + "attn.c_attn.bias", 3 * c.hidden, 1);
    made.add(h + "attn.c_proj.weight", c.hidden, c.hidden);
    made.add(h + "attn.c_proj.bias", c.hidden, 1);
    made.add(h + "ln_2.weight", c.hidden, 1);
    made.add(h + "ln_2.bias", c.hidden, 1);
    made.add(h + "mlp.c_fc.weight", c.hidden, c.intermediate);
    made.add(h + "mlp.c_fc.bias", c.intermediate, 1);
    made.add(h + "mlp.c_proj.weight", c.intermediate, c.hidden);
    made.add(h + "mlp.c_proj.bias", c.hidden, 1);
  }
  made.add(prefix + "ln_f.weight", c.hidden, 1);
  made.add(prefix + "ln_f.bias", c.hidden, 1);
  return made;
}

inline FileTensors llama_tensors(const ModelConfig& c) {
  FileTensors made;
  const std::int64_t queries = c.heads * c.head_size, keys = c.kv_heads * c.head_size;
  made.add("lm_head.weight", c.vocabulary, c.hidden);
  made.add("model.embed_tokens.weight", c.vocabulary, c.hidden);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string h = "model.layers." + std::to_string(layer) + ".";
    made.add(h + "input_layernorm.weight", c.hidden, 1);
    made.add(h + "mlp.down_proj.weight", c.hidden, c.intermediate);
    made.add(h + "mlp.gate_proj.weight", c.intermediate, c.hidden);
    made.add(h + "mlp.up_proj.weight", c.intermediate, c.hidden);
    made.add(h + "post_attention_layernorm.weight", c.hidden, 1);
    made.add(h + "self_attn.k_proj.weight", keys, c.hidden);
    made.add(h + "self_attn.o_proj.weight", c.hidden, queries);
    made.add(h + "self_attn.q_proj.weight", queries, c.hidden);
    made.add(h + "self_attn.v_proj.weight", keys, c.hidden);
  }
  made.add("model.norm.weight", c.hidden, 1);
  return made;
}

inline Parameter whole(const NamedShape& shape) { return whole_parameter(shape.name, shape.shape); }

using Wanted = std::function<std::vector<float>(const NamedShape&)>;

inline void expect_all_load(const std::string& path, const ModelConfig& config,
                            const Wanted& wanted) {
  const Result<WeightFolder> folder = WeightFolder::open(path);
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  EXPECT_TRUE(check_weights(*folder, config).ok()) << check_weights(*folder, config).to_string();
  for (const NamedShape& shape : parameter_shapes(config)) {
    const Tensor out = tensor(DataType::float32, shape.shape);
    const Status status = load_parameter(*folder, config, whole(shape), out);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(floats_of(out), wanted(shape)) << shape.name;
  }
}

inline ModelConfig mixtral_config() {
  ModelConfig config = llama_config();
  config.architecture = Architecture::mixtral;
  config.experts = 3;
  config.rope_theta = 1e6;
  return config;
}

}  // namespace tutti::training::testing
