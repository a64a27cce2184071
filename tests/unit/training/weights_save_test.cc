// Models saved: opened again, byte by byte as transformers has them, in shards, and not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "training/model/weights.hpp"
#include "training/tensor/philox.hpp"
#include "weight_samples.hpp"

namespace tutti::training {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// Numbers that are a function of the name and the place, exact in every type.
Tensor sample_values(const NamedShape& shape, DataType type = DataType::float32) {
  const Tensor made = tensor(type, shape.shape);
  const std::size_t salt = key_of(0, shape.name) % 89;
  visit(type, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < static_cast<std::size_t>(made.count()); ++i)
      made.as<T>()[i] = store<T>(static_cast<Wide<T>>((i * 7 + salt) % 251) - 125);
  });
  return made;
}

const Wanted kSampleFloats = [](const NamedShape& p) { return floats_of(sample_values(p)); };

TEST(SaveModel, OpensAgainWithTheSameParameters) {
  ModelConfig tied = llama_config();
  tied.tied = true;
  for (const ModelConfig& config : {llama_config(), tied, gpt2_config(), mixtral_config()})
    for (const std::uint64_t shards : {1u, 3u})
      for (const DataType type : kFloating) {
        const ModelFolder folder;
        std::vector<NamedShape> asked;
        const auto give = [&](const NamedShape& p) -> Result<Tensor> {
          asked.push_back(p);
          return sample_values(p);
        };
        const auto bytes = static_cast<std::uint64_t>(config.parameter_count()) * size_of(type);
        const Status saved = save_model(folder.path(), config, {type, bytes / shards}, give);
        ASSERT_TRUE(saved.ok()) << saved.to_string();
        EXPECT_EQ(asked, parameter_shapes(config));
        EXPECT_EQ(folder.has("model.safetensors"), shards == 1);
        EXPECT_EQ(*read_model_config(folder.path()), config);
        expect_all_load(folder.path(), config, kSampleFloats);
      }
}

TEST(SaveModel, WritesGpt2AsTransformersHasIt) {
  const ModelFolder folder;
  const ModelConfig config = gpt2_config();
  ASSERT_TRUE(save_model(folder.path(), config, {}, [](const NamedShape& p) -> Result<Tensor> {
                return sample_values(p);
              }).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder.file("model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const FileTensors names = gpt2_tensors(config, "transformer.");
  EXPECT_EQ(file->entries().size(), 2u + 2 * 12 + 2);
  for (const SafetensorsEntry& entry : file->entries()) {
    const FileMatrix& wanted = names[entry.name];  // throws for a name that is not there
    const Extents extents =
        wanted.columns == 1 ? Extents{wanted.rows} : Extents{wanted.rows, wanted.columns};
    EXPECT_EQ(entry.extents, extents) << entry.name;
  }
  const SafetensorsEntry& fused = *file->find("transformer.h.1.attn.c_attn.weight");
  const std::int64_t n = config.hidden;
  const char* projections[] = {"q_proj", "k_proj", "v_proj"};
  for (std::int64_t piece = 0; piece < 3; ++piece) {
    const Tensor ours = sample_values(
        {std::string("model.layers.1.self_attn.") + projections[piece] + ".weight", {n, n}});
    for (std::int64_t in = 0; in < n; ++in)
      for (std::int64_t out = 0; out < n; ++out) {
        float value = 0;
        std::memcpy(&value, fused.bytes.data() + 4 * (in * 3 * n + piece * n + out), 4);
        ASSERT_EQ(value, ours.as<float>()[out * n + in]);
      }
  }
}

TEST(SaveModel, ShardsAreNoLargerThanAsked) {
  const ModelFolder folder;
  const ModelConfig config = llama_config();
  constexpr std::uint64_t kMost = 700;
  ASSERT_TRUE(save_model(folder.path(), config, {DataType::float32, kMost},
                         [](const NamedShape& p) -> Result<Tensor> {
                           return sample_values(p, DataType::bfloat16);
                         })
                  .ok());
  const auto index = nlohmann::json::parse(folder.get("model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 4 * config.parameter_count());
  EXPECT_EQ(index["weight_map"].size(), parameter_shapes(config).size());
  std::uint64_t total = 0;
  std::size_t files = 0;
  for (const auto& item : std::filesystem::directory_iterator(folder.path())) {
    if (item.path().extension() != ".safetensors") continue;
    ++files;
    std::uint64_t bytes = 0;
    const SafetensorsFile file = SafetensorsFile::open(item.path().string()).value();
    for (const SafetensorsEntry& entry : file.entries()) bytes += entry.bytes.size();
    EXPECT_LE(bytes, kMost) << item.path();
    total += bytes;
  }
  EXPECT_EQ(total, static_cast<std::uint64_t>(4 * config.parameter_count()));
  EXPECT_GT(files, 4u);
  const std::string last = index["weight_map"]["lm_head.weight"];
  EXPECT_TRUE(folder.has(last));
  const std::string count =
      std::string(5 - std::to_string(files).size(), '0') + std::to_string(files);
  EXPECT_EQ(last, "model-" + count + "-of-" + count + ".safetensors");
}

TEST(SaveModel, ReplacesWhatWasThereInEitherForm) {
  const ModelFolder folder;
  const auto save = [&](const ModelConfig& config, std::uint64_t shard) {
    return save_model(folder.path(), config, {DataType::float32, shard},
                      [](const NamedShape& p) -> Result<Tensor> { return sample_values(p); });
  };
  ASSERT_TRUE(save(llama_config(), 1000).ok());
  ASSERT_TRUE(save(gpt2_config(), 1 << 30).ok());
  expect_all_load(folder.path(), gpt2_config(), kSampleFloats);
  EXPECT_FALSE(folder.has("model.safetensors.index.json"));
  ASSERT_TRUE(save(mixtral_config(), 1000).ok());
  expect_all_load(folder.path(), mixtral_config(), kSampleFloats);
  EXPECT_FALSE(folder.has("model.safetensors"));
}

// Neither of the new weights nor of those that were there before.
void expect_a_failure_leaves_nothing(std::uint64_t shard, std::uint64_t shard_before) {
  const ModelFolder folder;
  ASSERT_TRUE(save_model(folder.path(), llama_config(), {DataType::float32, shard_before},
                         [](const NamedShape& p) -> Result<Tensor> { return sample_values(p); })
                  .ok());
  int left = 9;
  const Status status = save_model(folder.path(), llama_config(), {DataType::float32, shard},
                                   [&](const NamedShape& p) -> Result<Tensor> {
                                     EXPECT_FALSE(WeightFolder::open(folder.path()).ok());
                                     if (left-- == 0)
                                       return Status(StatusCode::peer_lost, "rank 3 hung up", 3);
                                     return sample_values(p);
                                   });
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_EQ(status.culprit(), 3);
  EXPECT_FALSE(WeightFolder::open(folder.path()).ok());
  for (const auto& item : std::filesystem::directory_iterator(folder.path()))
    EXPECT_NE(item.path().extension(), ".tmp");
}

TEST(SaveModel, AFailureLeavesNothingThatOpens) {
  constexpr std::uint64_t kOneFile = std::uint64_t{1} << 40, kShards = 500;
  for (const std::uint64_t shard : {kOneFile, kShards})
    for (const std::uint64_t before : {kOneFile, kShards})
      expect_a_failure_leaves_nothing(shard, before);
}

TEST(SaveModel, RefusesTypesAndFoldersThatCannotBe) {
  const ModelFolder folder;
  const auto give = [](const NamedShape& p) -> Result<Tensor> { return sample_values(p); };
  EXPECT_EQ(save_model(folder.path(), llama_config(), {DataType::int32, 1000}, give).code(),
            StatusCode::invalid_argument);
  ModelConfig no_model = llama_config();
  no_model.hidden = 0;
  EXPECT_EQ(save_model(folder.path(), no_model, {}, give).code(), StatusCode::invalid_argument);
  folder.put("file", "");
  const Status status = save_model(folder.file("file/below"), llama_config(), {}, give);
  EXPECT_EQ(status.code(), StatusCode::system_error);
  EXPECT_THAT(status.message(), HasSubstr(folder.file("file/below")));
}

}  // namespace
}  // namespace tutti::training
