// Weights: files made by hand under Hugging Face's names against what the parameters must be, in
// whole, in parts and in ranges; types; what is wrong with a folder.
#include "training/model/weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "weight_samples.hpp"

namespace tutti::training {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// What GPT-2's parameters must be, spelt out without the tables under test.
std::vector<float> gpt2_wanted(const FileTensors& file, const std::string& prefix,
                               const NamedShape& p) {
  const auto plain = [&](const std::string& name) { return file[prefix + name].values; };
  if (p.name == "model.embed_tokens.weight") return plain("wte.weight");
  if (p.name == "model.embed_positions.weight") return plain("wpe.weight");
  if (p.name == "model.norm.weight") return plain("ln_f.weight");
  if (p.name == "model.norm.bias") return plain("ln_f.bias");
  const std::string layer = "h." + p.name.substr(13, 1) + ".";
  const std::string rest = p.name.substr(15);
  const bool bias = rest.ends_with(".bias");
  const std::string end = bias ? "bias" : "weight";
  if (rest.starts_with("input_layernorm")) return plain(layer + "ln_1." + end);
  if (rest.starts_with("post_attention_layernorm")) return plain(layer + "ln_2." + end);
  std::string theirs = "attn.c_attn.";
  if (rest.find("o_proj") != std::string::npos) theirs = "attn.c_proj.";
  if (rest.find("up_proj") != std::string::npos) theirs = "mlp.c_fc.";
  if (rest.find("down_proj") != std::string::npos) theirs = "mlp.c_proj.";
  std::int64_t before = 0;
  if (rest.find("k_proj") != std::string::npos) before = p.shape[0];
  if (rest.find("v_proj") != std::string::npos) before = 2 * p.shape[0];
  const FileMatrix& from = file[prefix + layer + theirs + end];
  std::vector<float> made;
  for (std::int64_t out = 0; out < p.shape[0]; ++out) {
    if (bias) made.push_back(from.at(before + out, 0));
    for (std::int64_t in = 0; !bias && in < p.shape[1]; ++in)
      made.push_back(from.at(in, before + out));
  }
  return made;
}

// Elements of the part, of the whole's.
std::vector<float> part_of(const std::vector<float>& values, const Parameter& p) {
  const std::int64_t columns = p.whole_shape.rank() == 2 ? p.whole_shape[1] : 1;
  std::vector<float> made;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
    const std::int64_t at = p.part.dimension == 0 ? i / columns : i % columns;
    if (at >= p.part.begin && at < p.part.begin + p.part.length)
      made.push_back(values[static_cast<std::size_t>(i)]);
  }
  return made;
}

// All ways to cut a parameter in two or three along each dimension, an empty piece among them.
std::vector<Parameter> cuts(const NamedShape& shape) {
  std::vector<Parameter> made;
  for (std::size_t dimension = 0; dimension < shape.shape.rank(); ++dimension) {
    const std::int64_t extent = shape.shape[dimension];
    const std::int64_t ends[] = {0, 1, extent / 2, extent, extent};
    for (std::size_t i = 1; i < std::size(ends); ++i) {
      made.push_back(whole(shape));
      made.back().part = {dimension, ends[i - 1], ends[i] - ends[i - 1]};
    }
  }
  return made;
}

void expect_parts_and_ranges_load(const std::string& path, const ModelConfig& config,
                                  const Wanted& wanted) {
  const WeightFolder folder = WeightFolder::open(path).value();
  std::mt19937 random(7);
  for (const NamedShape& shape : parameter_shapes(config))
    for (const Parameter& p : cuts(shape)) {
      const std::vector<float> part = part_of(wanted(shape), p);
      ASSERT_EQ(static_cast<std::int64_t>(part.size()), p.count());
      for (int i = 0; i < 12; ++i) {
        const auto size = static_cast<std::uint32_t>(p.count() + 1);
        std::int64_t begin = random() % size, end = random() % size;
        if (i == 0) begin = 0, end = p.count();
        if (begin > end) std::swap(begin, end);
        const Tensor out = tensor(DataType::float32, {end - begin});
        ASSERT_TRUE(load_range(folder, config, p, begin, end, out).ok());
        EXPECT_EQ(floats_of(out), std::vector<float>(part.begin() + begin, part.begin() + end))
            << p.name << " dimension " << p.part.dimension << " from " << p.part.begin << ": ["
            << begin << ", " << end << ")";
      }
    }
}

TEST(Weights, LlamaLoadsByItsNames) {
  const ModelFolder folder;
  const ModelConfig config = llama_config();
  const FileTensors file = llama_tensors(config);
  folder.put("model.safetensors", file.text());
  const Wanted wanted = [&](const NamedShape& p) { return file[p.name].values; };
  expect_all_load(folder.path(), config, wanted);
  expect_parts_and_ranges_load(folder.path(), config, wanted);
  expect_all_load(folder.file("model.safetensors"), config, wanted);
}

TEST(Weights, Gpt2IsTransposedAndItsFusedTensorsAreCut) {
  for (const char* prefix : {"transformer.", ""}) {
    const ModelFolder folder;
    const ModelConfig config = gpt2_config();
    const FileTensors file = gpt2_tensors(config, prefix);
    folder.put("model.safetensors", file.text());
    const Wanted wanted = [&](const NamedShape& p) { return gpt2_wanted(file, prefix, p); };
    expect_all_load(folder.path(), config, wanted);
    expect_parts_and_ranges_load(folder.path(), config, wanted);
  }
}

TEST(Weights, ATiedHeadIsTheEmbedding) {
  const ModelFolder folder;
  const ModelConfig config = gpt2_config();
  const FileTensors file = gpt2_tensors(config, "transformer.");
  folder.put("model.safetensors", file.text());
  const Tensor out = tensor(DataType::float32, {config.vocabulary, config.hidden});
  ASSERT_TRUE(load_parameter(WeightFolder::open(folder.path()).value(), config,
                             whole({"lm_head.weight", out.shape()}), out)
                  .ok());
  EXPECT_EQ(floats_of(out), file["transformer.wte.weight"].values);
}

// ---- Types ----

const std::vector<double> kNumbers = {0.0,
                                      -0.0,
                                      1.0,
                                      -1.0 / 3,
                                      65504.0,
                                      1e30,
                                      -1e-30,
                                      6e-8,
                                      1.00390625,
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity()};

// The numbers in a type, by the library's own conversions.
std::string numbers_as(DataType type) {
  std::string made;
  for (const double number : kNumbers) {
    const float narrow = static_cast<float>(number);
    if (type == DataType::float64) made += bytes_of_numbers<double>({number});
    if (type == DataType::float32) made += bytes_of_numbers<float>({narrow});
    if (type == DataType::float16) made += bytes_of_numbers<float16>({to_float16(narrow)});
    if (type == DataType::bfloat16) made += bytes_of_numbers<bfloat16>({to_bfloat16(narrow)});
  }
  return made;
}

const char* type_name(DataType type) {
  switch (type) {
    case DataType::float64:
      return "F64";
    case DataType::float32:
      return "F32";
    case DataType::float16:
      return "F16";
    default:
      return "BF16";
  }
}

ModelConfig vector_config() {  // whose norm has one element for each number
  ModelConfig config = llama_config();
  config.hidden = static_cast<std::int64_t>(kNumbers.size());
  return config;
}

std::string text_of(const Tensor& t) {
  return {reinterpret_cast<const char*>(t.data()), t.bytes()};
}

TEST(Weights, EveryTypeIsConvertedToEveryOther) {
  const auto size = static_cast<std::int64_t>(kNumbers.size());
  for (const DataType stored : kFloating)
    for (const DataType wanted : kFloating) {
      const ModelFolder folder;
      const std::string bytes = numbers_as(stored);
      // One byte before it, so that nothing is aligned.
      folder.put("model.safetensors", FileByHand()
                                          .add("pad", "U8", "[1]", "x")
                                          .add("model.norm.weight", type_name(stored),
                                               "[" + std::to_string(size) + "]", bytes)
                                          .text());
      const Tensor out = tensor(wanted, {size});
      const Status status =
          load_parameter(WeightFolder::open(folder.path()).value(), vector_config(),
                         whole({"model.norm.weight", {size}}), out);
      ASSERT_TRUE(status.ok()) << status.to_string();
      if (stored == wanted) {
        EXPECT_EQ(text_of(out), bytes);
        continue;
      }
      // Read what is stored, then narrow it, element by element.
      for (std::size_t i = 0; i < kNumbers.size(); ++i) {
        double value = 0;
        visit(stored, [&](auto element) {
          std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
          value = load(element);
        });
        visit(wanted, [&](auto zero) {
          using T = decltype(zero);
          EXPECT_EQ(load(out.as<T>()[i]), load(store<T>(static_cast<Wide<T>>(value))))
              << type_name(stored) << " to " << type_name(wanted) << ": " << kNumbers[i];
        });
      }
    }
}

TEST(Weights, NotANumberStaysOne) {
  const ModelFolder folder;
  const std::string bytes = bytes_of_numbers<std::uint16_t>({0x7fa1, 0xffff});  // bfloat16
  folder.put("model.safetensors",
             FileByHand().add("model.norm.weight", "BF16", "[2]", bytes).text());
  ModelConfig config = llama_config();
  config.hidden = 2;
  const WeightFolder weights = WeightFolder::open(folder.path()).value();
  const Parameter norm = whole({"model.norm.weight", {2}});
  for (const DataType type : kFloating) {
    const Tensor out = tensor(type, {2});
    ASSERT_TRUE(load_parameter(weights, config, norm, out).ok());
    for (const float value : floats_of(out)) EXPECT_TRUE(std::isnan(value)) << type_name(type);
    if (type != DataType::bfloat16) continue;
    EXPECT_EQ(text_of(out), bytes);
  }
}

// ---- Folders that are wrong ----

TEST(WeightErrors, NameTheTensorAndWhatWouldBeRight) {
  const ModelFolder folder;
  folder.put("model.safetensors", FileByHand()
                                      .add("model.norm.wieght", "F32", "[1]", "abcd")
                                      .add("lm_head.weight", "F32", "[1,2]", "abcdefgh")
                                      .add("model.embed_tokens.weight", "I8", "[2,1]", "ab")
                                      .text());
  const WeightFolder weights = WeightFolder::open(folder.path()).value();
  ModelConfig config = llama_config();
  config.hidden = 1;
  config.vocabulary = 2;
  const auto failure = [&](const NamedShape& shape) {
    return load_parameter(weights, config, whole(shape), tensor(DataType::float32, shape.shape));
  };
  const Status missing = failure({"model.norm.weight", {1}});
  EXPECT_EQ(missing.code(), StatusCode::corrupt_data);
  EXPECT_THAT(missing.message(),
              HasSubstr("no tensor \"model.norm.weight\"; nearest: model.norm.wieght"));
  EXPECT_THAT(missing.message(), HasSubstr(folder.path()));
  const Status shape = failure({"lm_head.weight", {2, 1}});
  EXPECT_EQ(shape.code(), StatusCode::corrupt_data);
  EXPECT_THAT(shape.message(), HasSubstr("\"lm_head.weight\" is [1, 2]; the model's config needs "
                                         "[2, 1]"));
  const Status type = failure({"model.embed_tokens.weight", {2, 1}});
  EXPECT_EQ(type.code(), StatusCode::corrupt_data);
  EXPECT_THAT(type.message(), HasSubstr("is of I8"));
  EXPECT_EQ(failure({"model.nrm.weight", {1}}).code(), StatusCode::invalid_argument);
  EXPECT_EQ(check_weights(weights, config).code(), StatusCode::corrupt_data);
}

TEST(WeightErrors, AFolderWithoutWeightsOrConfigIsNamed) {
  const ModelFolder folder;
  const Status status = WeightFolder::open(folder.path()).status();
  EXPECT_EQ(status.code(), StatusCode::system_error);
  EXPECT_THAT(status.message(), HasSubstr("neither model.safetensors nor"));
  EXPECT_EQ(WeightFolder::open(folder.file("none")).status().code(), StatusCode::system_error);
  EXPECT_THAT(read_model_config(folder.path()).status().message(), HasSubstr("config.json"));
  folder.put("config.json", "{}");
  EXPECT_THAT(read_model_config(folder.path()).status().message(), HasSubstr(folder.path()));
  folder.put("config.json", std::string((std::size_t{1} << 20) + 1, ' '));
  EXPECT_EQ(read_model_config(folder.path()).status().code(), StatusCode::corrupt_data);
}

TEST(WeightIndex, JoinsItsFiles) {
  const ModelFolder folder;
  folder.put("one.safetensors", FileByHand().add("a", "U8", "[1]", "a").text());
  folder.put("two.safetensors",
             FileByHand().add("b", "U8", "[1]", "b").add("spare", "U8", "[1]", "s").text());
  folder.put("model.safetensors.index.json",
             R"({"metadata": {"total_size": 2},
                 "weight_map": {"b": "two.safetensors", "a": "one.safetensors"}})");
  const Result<WeightFolder> weights = WeightFolder::open(folder.path());
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  EXPECT_EQ(weights->names(), (std::vector<std::string>{"a", "b"}));
  const WeightFolder copy = *weights;
  EXPECT_EQ(copy.find("b")->bytes[0], std::byte{'b'});
  EXPECT_EQ(copy.find("spare"), nullptr);
}

TEST(WeightIndex, WhatItMustNotSayIsRefused) {
  struct Case {
    const char* index;
    StatusCode code;
    const char* text;
  };
  const Case cases[] = {
      {"{", StatusCode::corrupt_data, "not JSON"},
      {"{}", StatusCode::corrupt_data, "\"weight_map\" must be an object"},
      {R"({"weight_map": []})", StatusCode::corrupt_data, "\"weight_map\" must be an object"},
      {R"({"weight_map": {"a": 1}})", StatusCode::corrupt_data, "\"a\" must have the name"},
      {R"({"weight_map": {"a": "../one.safetensors"}})", StatusCode::corrupt_data, "in the folder"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", StatusCode::corrupt_data, "in the folder"},
      {R"({"weight_map": {"a": ".."}})", StatusCode::corrupt_data, "in the folder"},
      {R"({"weight_map": {"a": ""}})", StatusCode::corrupt_data, "in the folder"},
      {R"({"weight_map": {"a": "one.safetensors\u0000x"}})", StatusCode::corrupt_data,
       "in the folder"},
      {R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})",
       StatusCode::corrupt_data, "twice"},
      {R"({"weight_map": {"b": "one.safetensors"}})", StatusCode::corrupt_data, "and it has not"},
      {R"({"weight_map": {"a": "none.safetensors"}})", StatusCode::system_error,
       "none.safetensors"},
      {R"({"weight_map": {"a": "torn.safetensors"}})", StatusCode::corrupt_data,
       "torn.safetensors"},
  };
  for (const Case& one : cases) {
    const ModelFolder folder;
    folder.put("one.safetensors", FileByHand().add("a", "U8", "[1]", "a").text());
    folder.put("torn.safetensors", "torn");
    folder.put("model.safetensors.index.json", one.index);
    const Status status = WeightFolder::open(folder.path()).status();
    EXPECT_EQ(status.code(), one.code) << one.index;
    EXPECT_THAT(status.message(), HasSubstr(one.text)) << one.index;
  }
}

}  // namespace
}  // namespace tutti::training
