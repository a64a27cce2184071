// checkpoint_test.cc: what a checkpoint holds does not depend on the layout that wrote it, nor on
// whether it was written while training went on; a run goes on from it as if it had never stopped;
// and what is wrong with one is told with the file and the tensor.
#include "training/trainer/checkpoint.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "training/architecture/names.hpp"
#include "training/engine/engine.hpp"
#include "training/model/safetensors.hpp"
#include "training/trainer/checkpoint_state.hpp"
#include "training/trainer/checkpoint_tools.hpp"
#include "unit/training/layout_world.hpp"
#include "unit/training/model_files.hpp"

namespace tutti::training::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ModelFolder;

// ---- Engines that come and go ----

// Everything that an engine remembers, whole: weights by name, and "moment_1 of NAME".
using Memory = std::map<std::string, std::vector<double>>;

void remember(const std::string& name, const MasterPlace& place, const Tensor& value,
              Memory& memory) {
  std::vector<double>& whole = memory[name];
  whole.resize(static_cast<std::size_t>(place.parameter->whole_shape.count()));
  visit(value.type(), [&](auto zero) {
    const auto* values = value.as<decltype(zero)>();
    for_each_run(*place.parameter, place.begin, place.begin + value.count(),
                 [&](const PartRun& run) {
                   for (std::int64_t i = 0; i < run.length; ++i)
                     whole[static_cast<std::size_t>(run.in_whole + i)] =
                         load(values[run.in_part - place.begin + i]);
                 });
  });
}

// A life of an engine: it is born or resumed, trains, saves, and is looked at.
struct Life {
  std::string from = {};  // a checkpoint; empty: drawn
  int first = 0, end = 0;
  std::map<int, std::string> saves = {};  // after so many steps of the run, into that folder
  bool async = false;
  std::int64_t keep = 0;
};

struct Lived {
  std::vector<double> losses;
  Memory memory;
  CheckpointState state;
  std::vector<Status> failures;  // of the ranks that could not resume
  std::mutex mutex;

  bool someone_failed() {
    const std::lock_guard lock(mutex);
    return !failures.empty();
  }
};

CheckpointState state_of(const Engine& engine, int step) {
  const EngineOptions& options = engine.options();
  CheckpointState state;
  state.step = step;
  state.optimizer_steps = engine.steps_done();
  state.layout = options.mesh.to_string();
  state.type = std::string(to_string(options.type));
  state.optimizer = optimizer_name(options.optimizer.kind);
  state.moments = static_cast<int>(moment_count(options.optimizer));
  return state;
}

void train_and_save(Engine& engine, const Life& life, Lived& lived) {
  std::map<std::string, std::unique_ptr<CheckpointWriter>> writers;
  for (const auto& [step, folder] : life.saves)
    if (!writers.contains(folder))
      writers[folder] = std::make_unique<CheckpointWriter>(
          engine, CheckpointOptions{folder, life.keep, life.async, "# a run\n"});
  for (int step = life.first; step < life.end; ++step) {
    auto result = engine.step(step_input(engine.options(), step));
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    if (engine.groups().world->rank() == 0) lived.losses.push_back(result->loss);
    for (auto& [folder, writer] : writers) ASSERT_TRUE(writer->poll().ok());
    const auto save = life.saves.find(step + 1);
    if (save == life.saves.end()) continue;
    const Status status = writers[save->second]->begin(state_of(engine, step + 1));
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  for (auto& [folder, writer] : writers) ASSERT_TRUE(writer->finish().ok());
}

void live_as_rank(Communicator& world, const EngineOptions& options, const Life& life,
                  Lived& lived) {
  auto engine = Engine::make(world, options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  if (life.from.empty()) {
    ASSERT_TRUE((*engine)->initialise(7).ok());
  } else {
    auto state = load_checkpoint(life.from, **engine);
    const std::lock_guard lock(lived.mutex);
    if (!state.ok()) return lived.failures.push_back(state.status());
    lived.state = *state;
  }
  train_and_save(**engine, life, lived);
  ASSERT_TRUE((*engine)->data_parallel().settle_values().ok());
  const std::lock_guard lock(lived.mutex);
  (*engine)->visit_masters([&](const MasterPlace& place) {
    if (!place.answers) return;
    remember(place.parameter->name, place, place.value, lived.memory);
    for (std::size_t i = 0; i < place.moments.size(); ++i)
      remember("moment_" + std::to_string(i + 1) + " of " + place.parameter->name, place,
               place.moments[i], lived.memory);
  });
}

std::unique_ptr<Lived> live(const EngineOptions& options, const Life& life) {
  auto lived = std::make_unique<Lived>();
  CommunicatorOptions communication;
  communication.reduce_order = "rank_tree";
  auto worlds = Communicator::for_threads(options.mesh.world(), communication);
  EXPECT_TRUE(worlds.ok()) << worlds.status().to_string();
  std::vector<std::thread> ranks;
  for (Communicator& world : *worlds)
    ranks.emplace_back([&] {
      live_as_rank(world, options, life, *lived);
      if (::testing::Test::HasFatalFailure() || lived->someone_failed()) world.abort();
    });
  for (std::thread& rank : ranks) rank.join();
  return lived;
}

// Why no engine of these options resumes from the checkpoint.
std::string why_not(const EngineOptions& options, const std::string& checkpoint) {
  const auto lived = live(options, {.from = checkpoint});
  return lived->failures.empty() ? std::string() : lived->failures.front().to_string();
}

std::string checkpoint_of(const std::string& folder, int step) {
  return fmt::format("{}/step-{:08}", folder, step);
}

// ---- Layouts ----

EngineOptions layout(const Mesh& mesh, Zero zero = Zero::replicate) {
  EngineOptions options = small_options();
  options.micro_batches = 4;
  options.mesh = mesh;
  options.data.zero = zero;
  options.data.bucket_bytes = 16 << 10;
  return options;
}

EngineOptions as_mixtral(EngineOptions options) {
  options.model.architecture = Architecture::mixtral;
  options.model.experts = 4;
  options.model.experts_per_token = 2;
  options.model.balance_coefficient = 0.02;
  return options;
}

EngineOptions as_tied_gpt2(EngineOptions options) {
  options.model.architecture = Architecture::gpt2;
  options.model.kv_heads = options.model.heads;
  options.model.tied = true;
  return options;
}

struct Move {
  std::string name;
  EngineOptions from, to;
  bool same_bits;  // the two layouts train the same bits
};

std::vector<Move> moves() {
  const auto zero3 = Zero::values;
  return {
      {"ddp2_to_fsdp4", layout(mesh_of(1, 2, 1, 1)), layout(mesh_of(1, 1, 4, 1), zero3), true},
      {"zero1_to_zero2", layout(mesh_of(1, 1, 2, 1), Zero::optimizer),
       layout(mesh_of(1, 1, 2, 1), Zero::gradients), true},
      {"tp2_pp2_to_hsdp2x2", layout(mesh_of(2, 1, 1, 2)), layout(mesh_of(1, 2, 2, 1), zero3),
       false},
      {"pp4_to_serial", layout(mesh_of(4, 1, 1, 1)), layout(mesh_of(1, 1, 1, 1)), true},
      {"serial_to_tp4", layout(mesh_of(1, 1, 1, 1)), layout(mesh_of(1, 1, 1, 4)), false},
      {"ep2_to_serial", as_mixtral(layout(mesh_of(1, 2, 1, 1, 2))), as_mixtral(layout(Mesh())),
       false},
      {"serial_to_ep2_fsdp2", as_mixtral(layout(Mesh())),
       as_mixtral(layout(mesh_of(1, 1, 2, 1, 2), zero3)), false},
      {"tied_pp2_to_tied_tp2", as_tied_gpt2(layout(mesh_of(2, 1, 1, 1))),
       as_tied_gpt2(layout(mesh_of(1, 1, 1, 2))), false},
      {"tied_fsdp2_to_tied_pp4", as_tied_gpt2(layout(mesh_of(1, 1, 2, 1), zero3)),
       as_tied_gpt2(layout(mesh_of(4, 1, 1, 1))), false},
  };
}

class Moves : public ::testing::TestWithParam<Move> {};

TEST_P(Moves, KeepWeightsAndMomentsToTheBit) {
  const ModelFolder folder;
  const auto saved = live(GetParam().from, {.end = 3, .saves = {{3, folder.path()}}});
  const auto loaded = live(GetParam().to, {.from = checkpoint_of(folder.path(), 3)});
  EXPECT_FALSE(saved->memory.empty());
  EXPECT_TRUE(loaded->memory == saved->memory);
  EXPECT_EQ(loaded->state.step, 3);
  EXPECT_EQ(loaded->state.optimizer_steps, 3);
}

TEST_P(Moves, TrainOnAsIfNothingHadHappened) {
  const ModelFolder folder;
  const auto whole = live(GetParam().from, {.end = 6, .saves = {{3, folder.path()}}});
  const std::string middle = checkpoint_of(folder.path(), 3);
  const auto same = live(GetParam().from, {.from = middle, .first = 3, .end = 6});
  const std::vector<double> second_half(whole->losses.begin() + 3, whole->losses.end());
  EXPECT_EQ(same->losses, second_half);
  EXPECT_TRUE(same->memory == whole->memory);

  const auto moved = live(GetParam().to, {.from = middle, .first = 3, .end = 6});
  EXPECT_LE(difference(moved->losses, second_half), 1e-5);
  if (!GetParam().same_bits) return;
  EXPECT_EQ(moved->losses, second_half);
  EXPECT_TRUE(moved->memory == whole->memory);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Moves, ::testing::ValuesIn(moves()),
                         [](const auto& each) { return each.param.name; });

// ---- Writing ----

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

TEST(Checkpoint, WrittenWhileTrainingGoesOnIsWhatItWasWhenItBegan) {
  const ModelFolder at_once, meanwhile;
  const EngineOptions options = layout(mesh_of(1, 1, 2, 2), Zero::values);
  live(options, {.end = 2, .saves = {{2, at_once.path()}}});
  live(options, {.end = 5, .saves = {{2, meanwhile.path()}}, .async = true});
  const auto expected = files_of(checkpoint_of(at_once.path(), 2));
  EXPECT_EQ(expected.size(), 6u);
  EXPECT_TRUE(files_of(checkpoint_of(meanwhile.path(), 2)) == expected);
}

TEST(Checkpoint, OnlyTheNewestOnesAreKept) {
  const ModelFolder two, all;
  const auto saves = [](const ModelFolder& folder) {
    return std::map<int, std::string>{
        {1, folder.path()}, {2, folder.path()}, {3, folder.path()}, {4, folder.path()}};
  };
  live(layout(mesh_of(1, 2, 1, 1)), {.end = 4, .saves = saves(two), .async = true, .keep = 2});
  live(layout(mesh_of(1, 2, 1, 1)), {.end = 4, .saves = saves(all), .async = true, .keep = 0});
  EXPECT_THAT(list_checkpoints(two.path()),
              ::testing::ElementsAre(checkpoint_of(two.path(), 3), checkpoint_of(two.path(), 4)));
  EXPECT_EQ(list_checkpoints(all.path()).size(), 4u);
  EXPECT_EQ(newest_checkpoint(all.path()), checkpoint_of(all.path(), 4));
}

// A run that begins anew in a folder does not lose what it has just written.
TEST(Checkpoint, ThoseOfLaterStepsAreOfAnotherRunAndStay) {
  const ModelFolder folder;
  live(layout(Mesh()), {.end = 4, .saves = {{3, folder.path()}, {4, folder.path()}}});
  live(layout(Mesh()), {.end = 2, .saves = {{1, folder.path()}, {2, folder.path()}}, .keep = 1});
  EXPECT_THAT(
      list_checkpoints(folder.path()),
      ::testing::ElementsAre(checkpoint_of(folder.path(), 2), checkpoint_of(folder.path(), 3),
                             checkpoint_of(folder.path(), 4)));
}

TEST(Checkpoint, WhatADeadRunLeftIsIgnoredAndReplaced) {
  const ModelFolder folder;
  const std::string left = checkpoint_of(folder.path(), 2) + ".tmp";
  fs::create_directories(left);
  std::ofstream(left + "/model.safetensors.tmp") << "half of it";
  std::ofstream(left + "/junk") << "junk";
  fs::create_directories(checkpoint_of(folder.path(), 9));  // never got its state.json
  EXPECT_EQ(newest_checkpoint(folder.path()), "");

  live(layout(mesh_of(1, 2, 1, 1)), {.end = 2, .saves = {{2, folder.path()}}});
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(newest_checkpoint(folder.path()), checkpoint_of(folder.path(), 2));
  EXPECT_FALSE(fs::exists(checkpoint_of(folder.path(), 2) + "/junk"));
  EXPECT_EQ(why_not(layout(Mesh()), checkpoint_of(folder.path(), 2)), "");
}

TEST(Checkpoint, ThatCannotBeWrittenFailsOnAllRanksAndLeavesTheOneBefore) {
  const ModelFolder folder;
  const std::string in_the_way = folder.put("file", "not a folder");
  auto worlds = Communicator::for_threads(2);
  ASSERT_TRUE(worlds.ok());
  std::vector<Status> outcomes(2);
  std::vector<std::thread> ranks;
  for (Communicator& world : *worlds)
    ranks.emplace_back([&] {
      auto engine = Engine::make(world, layout(mesh_of(1, 2, 1, 1)));
      ASSERT_TRUE((*engine)->initialise(7).ok());
      CheckpointWriter writer(**engine, {in_the_way, 0, true, ""});
      outcomes[static_cast<std::size_t>(world.rank())] = writer.begin(state_of(**engine, 1));
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(outcomes[0].code(), StatusCode::system_error);
  EXPECT_THAT(outcomes[0].to_string(), HasSubstr(in_the_way));
  EXPECT_THAT(outcomes[1].to_string(), HasSubstr("another rank"));
}

// ---- Types and optimizers ----

TEST(Checkpoint, OfABfloat16RunKeepsTheMastersBits) {
  const ModelFolder folder;
  EngineOptions options = layout(mesh_of(1, 1, 2, 1), Zero::values);
  options.type = DataType::bfloat16;
  const auto whole = live(options, {.end = 6, .saves = {{3, folder.path()}}});
  const auto rest = live(options, {.from = checkpoint_of(folder.path(), 3), .first = 3, .end = 6});
  EXPECT_EQ(rest->losses, std::vector<double>(whole->losses.begin() + 3, whole->losses.end()));
  EXPECT_TRUE(rest->memory == whole->memory);
  std::int64_t finer = 0;  // values that bfloat16 cannot hold
  for (const auto& [name, values] : whole->memory)
    for (const double value : values)
      finer += load(store<bfloat16>(static_cast<float>(value))) != value;
  EXPECT_GT(finer, 1000);
}

EngineOptions with_sgd(double momentum) {
  EngineOptions options = layout(mesh_of(1, 2, 1, 1));
  options.optimizer.kind = OptimizerKind::sgd;
  options.optimizer.momentum = momentum;
  return options;
}

TEST(Checkpoint, OfSgdGoesOnToTheBitWithAndWithoutMomentum) {
  for (const double momentum : {0.9, 0.0}) {
    const ModelFolder folder;
    const EngineOptions options = with_sgd(momentum);
    const auto whole = live(options, {.end = 4, .saves = {{2, folder.path()}}});
    const auto rest =
        live(options, {.from = checkpoint_of(folder.path(), 2), .first = 2, .end = 4});
    EXPECT_TRUE(rest->memory == whole->memory);
    EXPECT_EQ(fs::exists(checkpoint_of(folder.path(), 2) + "/moment_1.safetensors"), momentum > 0);
  }
}

TEST(Checkpoint, OfAnotherOptimizerIsRefusedWithBothNames) {
  const ModelFolder sgd, adamw;
  live(with_sgd(0.9), {.end = 1, .saves = {{1, sgd.path()}}});
  live(layout(Mesh()), {.end = 1, .saves = {{1, adamw.path()}}});
  EXPECT_THAT(why_not(layout(Mesh()), checkpoint_of(sgd.path(), 1)),
              AllOf(HasSubstr(checkpoint_of(sgd.path(), 1)), HasSubstr("1 moments, written by sgd"),
                    HasSubstr("adamw needs 2")));
  EXPECT_THAT(why_not(with_sgd(0.9), checkpoint_of(adamw.path(), 1)),
              AllOf(HasSubstr("2 moments, written by adamw"), HasSubstr("sgd needs 1")));
  EXPECT_EQ(why_not(with_sgd(0), checkpoint_of(adamw.path(), 1)), "");  // it remembers nothing
}

TEST(Checkpoint, OfSgdWithoutMomentumIsNoneForMomentum) {
  const ModelFolder folder;
  live(with_sgd(0), {.end = 1, .saves = {{1, folder.path()}}});
  EXPECT_THAT(why_not(with_sgd(0.9), checkpoint_of(folder.path(), 1)),
              HasSubstr("0 moments, written by sgd, but this run's sgd needs 1"));
}

// ---- Damage ----

class Damaged : public ::testing::Test {
 protected:
  void SetUp() override {
    live(layout(Mesh()), {.end = 1, .saves = {{1, folder_.path()}}});
    path_ = checkpoint_of(folder_.path(), 1);
  }

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string why() const { return why_not(layout(Mesh()), path_); }

  // Writes a file again, with tensors as `change` leaves them; false: without this one.
  void rewrite(const std::string& name, const std::function<bool(NamedBytes&)>& change) const {
    auto open = SafetensorsFile::open(file(name));
    ASSERT_TRUE(open.ok()) << open.status().to_string();
    std::vector<NamedBytes> tensors;
    for (const SafetensorsEntry& entry : open->entries()) {
      NamedBytes tensor{{entry.name, *entry.type, entry.extents}, entry.bytes};
      if (change(tensor)) tensors.push_back(tensor);
    }
    ASSERT_TRUE(write_safetensors(file(name), tensors).ok());
  }

  ModelFolder folder_;
  std::string path_;
};

constexpr const char* kTensor = "model.layers.1.mlp.down_proj.weight";

TEST_F(Damaged, AMissingTensorIsNamedWithItsFile) {
  EXPECT_EQ(why(), "");
  rewrite("moment_2.safetensors", [](const NamedBytes& t) { return t.plan.name != kTensor; });
  EXPECT_THAT(why(), AllOf(HasSubstr(file("moment_2.safetensors")), HasSubstr(kTensor)));
}

TEST_F(Damaged, OtherExtentsAreNamedWithTensorAndFile) {
  rewrite("model.safetensors", [](NamedBytes& t) {
    if (t.plan.name == kTensor) std::swap(t.plan.extents[0], t.plan.extents[1]);
    return true;
  });
  EXPECT_THAT(why(), AllOf(HasSubstr(file("model.safetensors")), HasSubstr(kTensor)));
}

TEST_F(Damaged, AnotherTypeIsNamedWithTensorAndFile) {
  rewrite("moment_1.safetensors", [](NamedBytes& t) {
    if (t.plan.name == kTensor) t.plan.type = DataType::int32;
    return true;
  });
  EXPECT_THAT(why(),
              AllOf(HasSubstr(file("moment_1.safetensors")), HasSubstr(kTensor), HasSubstr("I32")));
}

// What is no number is equal to itself, and far from all else.
TEST_F(Damaged, ATensorThatBecameNoNumberDiffersByInfinity) {
  const ModelFolder other;
  fs::copy(path_, other.file("same"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> changed;
  rewrite("model.safetensors", [&](NamedBytes& t) {
    if (t.plan.name != kTensor) return true;
    changed.assign(t.bytes.begin(), t.bytes.end());
    std::memcpy(changed.data(), &nan, sizeof nan);
    t.bytes = changed;
    return true;
  });
  auto found = compare_checkpoints(path_, other.file("same"));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().differing, 1);
  EXPECT_EQ(found->front().largest, HUGE_VAL);
  found = compare_checkpoints(path_, path_);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->empty());
}

// Of the same extents, but of types whose elements are not read.
TEST_F(Damaged, TensorsThatAreNoNumbersHereDifferByTheirBytes) {
  const ModelFolder other;
  fs::copy(path_, other.file("same"));
  const auto as_integers = [](NamedBytes& t) {
    if (t.plan.name == kTensor) t.plan.type = DataType::int32;
    return true;
  };
  const auto problem = [&] {
    const auto found = compare_checkpoints(path_, other.file("same"));
    EXPECT_TRUE(found.ok());
    return found.ok() && found->size() == 1 ? found->front().problem : "";
  };
  EXPECT_EQ(problem(), "");
  rewrite("model.safetensors", as_integers);
  EXPECT_EQ(problem(), "I32 against F32");
  fs::copy_file(file("model.safetensors"), other.file("same/model.safetensors"),
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(problem(), "");
  std::vector<std::byte> changed;
  rewrite("model.safetensors", [&](NamedBytes& t) {
    if (t.plan.name != kTensor) return true;
    changed.assign(t.bytes.begin(), t.bytes.end());
    changed[0] ^= std::byte{1};
    t.bytes = changed;
    return true;
  });
  EXPECT_EQ(problem(), "other bytes, of I32");
}

TEST_F(Damaged, AWholeTensorOfOtherExtentsIsRefused) {
  const auto read = [&] {
    auto folder = WeightFolder::open(path_);
    EXPECT_TRUE(folder.ok()) << folder.status().to_string();
    Arena arena;
    const ModelConfig model = layout(Mesh()).model;
    for (const NamedShape& named : parameter_shapes(model)) {
      if (named.name != kTensor) continue;
      const Tensor out(arena, MemoryKind::parameter, DataType::float32, named.shape);
      return load_whole(*folder, model, whole_parameter(named.name, named.shape), out);
    }
    return Status(StatusCode::internal, "no such parameter");
  };
  EXPECT_TRUE(read().ok());
  rewrite("model.safetensors", [](NamedBytes& t) {
    if (t.plan.name == kTensor) std::swap(t.plan.extents[0], t.plan.extents[1]);
    return true;
  });
  EXPECT_THAT(read().to_string(), HasSubstr(kTensor));
}

TEST_F(Damaged, ATensorThatTheModelHasNotIsNamed) {
  EngineOptions smaller = layout(Mesh());
  smaller.model.layers = 3;
  EXPECT_THAT(why_not(smaller, path_),
              AllOf(HasSubstr(file("model.safetensors")), HasSubstr("model.layers.3.")));
}

TEST_F(Damaged, AFileThatEndsEarlyIsNamed) {
  for (const char* name : {"model.safetensors", "moment_1.safetensors"}) {
    const auto size = fs::file_size(file(name));
    fs::copy_file(file(name), file("whole"));
    fs::resize_file(file(name), size / 2);
    EXPECT_THAT(why(), HasSubstr(file(name)));
    fs::rename(file("whole"), file(name));
  }
  EXPECT_EQ(why(), "");
}

TEST_F(Damaged, AMissingFileIsNamed) {
  fs::remove(file("moment_2.safetensors"));
  EXPECT_THAT(why(), HasSubstr(file("moment_2.safetensors")));
}

TEST_F(Damaged, AStateThatIsNotOneIsNamedWithItsKey) {
  const auto good = files_of(path_)["state.json"];
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::ofstream(file("state.json")) << text;
    return why();
  };
  EXPECT_THAT(with("\"format\": 1", "\"format\": 2"),
              AllOf(HasSubstr(path_), HasSubstr("format 2 is not 1")));
  EXPECT_THAT(with("\"moments\"", "\"moment\""), AllOf(HasSubstr(path_), HasSubstr("moments")));
  EXPECT_THAT(with("\"step\": 1", "\"step\": -1"), HasSubstr("step -1"));
  EXPECT_THAT(with("\"step\": 1", "\"step\": 1e300"), HasSubstr("step is no whole number"));
  EXPECT_THAT(with("\"moments\": 2", "\"moments\": 4294967298"), HasSubstr("moments 4294967298"));
  EXPECT_THAT(with("{", "["), AllOf(HasSubstr(path_), HasSubstr("state.json")));
  EXPECT_EQ(with("1", "1"), "");
}

}  // namespace
}  // namespace tutti::training::test
