// known_bugs_test.cc: facts about whole steps and runs that mistakes known from other trainers
// break. What one layout has in common with another, layouts_test.cc compares; here is what a
// mistake would change in all layouts alike, and the corners that few layouts have.
//
// tests/bugs/training_bugs.py names the mistakes, and which of these facts each must break.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "training/architecture/targets.hpp"
#include "training/engine/engine.hpp"
#include "training/model/weights.hpp"
#include "training/trainer/checkpoint.hpp"
#include "training/trainer/checkpoint_tools.hpp"
#include "training/trainer/run_data.hpp"
#include "training/trainer/trainer.hpp"
#include "unit/training/layout_world.hpp"

namespace tutti::training::test {
namespace {

// ---- Runs of an engine ----

// Calls `f` on each rank of a world of threads.
void on_ranks(int count, const std::function<void(Communicator&)>& f) {
  CommunicatorOptions options;
  options.reduce_order = "rank_tree";
  auto worlds = Communicator::for_threads(count, options);
  ASSERT_TRUE(worlds.ok()) << worlds.status().to_string();
  std::vector<std::thread> ranks;
  for (Communicator& world : *worlds)
    ranks.emplace_back([&f, &world] {
      f(world);
      if (::testing::Test::HasFatalFailure()) world.abort();
    });
  for (std::thread& rank : ranks) rank.join();
}

using MakeInput = std::function<StepInput(std::int64_t step)>;
using Prepare = std::function<void(Engine& engine)>;

struct Learned {
  Trained trained;                          // weights only
  std::vector<std::vector<StepResult>> of;  // each rank's, of each step
  std::vector<std::int64_t> steps_done;     // each rank's
};

// Steps whose inputs the caller makes. `prepare` may change weights after their initial values.
Learned learn(const EngineOptions& options, int steps, const MakeInput& input,
              const Prepare& prepare = {}) {
  const auto ranks = static_cast<std::size_t>(options.mesh.world());
  Learned learned;
  learned.of.resize(ranks);
  learned.steps_done.resize(ranks);
  std::mutex mutex;
  on_ranks(options.mesh.world(), [&](Communicator& world) {
    auto engine = Engine::make(world, options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    ASSERT_TRUE((*engine)->initialise(7).ok());
    if (prepare) {
      ASSERT_TRUE((*engine)->data_parallel().settle_values().ok());
      prepare(**engine);
      ASSERT_TRUE((*engine)->publish().ok());
    }
    const auto rank = static_cast<std::size_t>(world.rank());
    for (int step = 0; step < steps; ++step) {
      auto result = (*engine)->step(input(step));
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      learned.of[rank].push_back(*result);
    }
    learned.steps_done[rank] = (*engine)->steps_done();
    collect_weights(**engine, mutex, learned.trained);
  });
  return learned;
}

Learned learn(const EngineOptions& options, int steps, const Prepare& prepare = {}) {
  return learn(
      options, steps, [&options](std::int64_t step) { return step_input(options, step); }, prepare);
}

EngineOptions two_layers(DataType type) {
  EngineOptions options = small_options(type);
  options.model.layers = 2;
  options.micro_batches = 4;
  return options;
}

// The change of a weight so many steps make is its gradient's, times the learning rate.
EngineOptions plain_descent(DataType type = DataType::float64) {
  EngineOptions options = two_layers(type);
  options.optimizer.kind = OptimizerKind::sgd;
  options.optimizer.momentum = 0;
  options.optimizer.weight_decay = 0;
  options.clip = 0;
  return options;
}

EngineOptions mixture(EngineOptions options) {
  options.model.architecture = Architecture::mixtral;
  options.model.experts = 4;
  options.model.experts_per_token = 2;
  return options;
}

void expect_same_bits(const EngineOptions& options, const Trained& expected, int steps,
                      const std::string& what) {
  const Trained trained = train(options, steps);
  EXPECT_EQ(trained.losses, expected.losses) << what;
  EXPECT_EQ(trained.norms, expected.norms) << what;
  EXPECT_TRUE(trained.weights == expected.weights)
      << what << ": weights differ by " << weight_difference(trained, expected);
}

// ---- What is minimised ----

// Rows of which few or many targets count, the same however they are cut into micro-batches.
StepInput masked_input(const EngineOptions& options, std::int64_t step) {
  StepInput input = step_input(options, step);
  const std::int64_t rows = options.micro_batch_rows, sequence = options.sequence;
  const auto counts = [sequence](std::int64_t row) { return 1 + row * row * 3 % sequence; };
  input.fill = [&options, step, rows, sequence, counts](std::int64_t number,
                                                        std::span<std::int32_t> tokens,
                                                        std::span<std::int32_t> targets) {
    fill_micro_batch(options, step, number, tokens, targets);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t t = counts(number * rows + row); t < sequence; ++t)
        targets[static_cast<std::size_t>(row * sequence + t)] = kIgnored;
  };
  input.targets = 0;
  for (std::int64_t row = 0; row < rows * options.micro_batches; ++row)
    input.targets += counts(row);
  return input;
}

TEST(KnownBugs, EachTargetWeighsTheSameHoweverRowsAreCut) {
  std::vector<Learned> all;
  for (const int micro_batches : {1, 8, 2}) {
    EngineOptions options = two_layers(DataType::float64);
    options.micro_batches = micro_batches;
    options.micro_batch_rows = 8 / micro_batches;
    options.mesh.dp_replicate = micro_batches == 2 ? 2 : 1;
    all.push_back(
        learn(options, 3, [&](std::int64_t step) { return masked_input(options, step); }));
    for (std::size_t step = 0; step < 3; ++step) {
      EXPECT_NEAR(all.back().of[0][step].loss, all[0].of[0][step].loss, 1e-11);
      EXPECT_NEAR(all.back().of[0][step].gradient_norm, all[0].of[0][step].gradient_norm, 1e-10);
    }
    EXPECT_LT(weight_difference(all.back().trained, all[0].trained), 1e-9);
  }
}

// To the first order a small step makes what is minimised smaller by its length times the norm of
// the gradient: which it does only if the gradient is that of what is reported.
TEST(KnownBugs, TheGradientIsThatOfTheReportedLosses) {
  EngineOptions options = mixture(plain_descent());
  options.model.balance_coefficient = 3;
  options.model.initial_deviation = 0.4;  // so that experts are chosen unevenly
  const Learned learned = learn(options, 2, [&](std::int64_t) {
    StepInput input = step_input(options, 0);
    input.learning_rate = 1e-8;
    return input;
  });
  const auto total = [&](std::size_t step) {
    const StepResult& result = learned.of[0][step];
    return result.loss + options.model.balance_coefficient * result.balance_loss;
  };
  const double slope = learned.of[0][0].gradient_norm;
  EXPECT_GT(learned.of[0][0].balance_loss, 1.01);
  EXPECT_NEAR((total(0) - total(1)) / 1e-8 / (slope * slope), 1, 1e-4);
}

// ---- The optimizer ----

double length_of_change(const Trained& from, const Trained& to) {
  double squares = 0;
  for (const auto& [name, values] : from.weights)
    for (std::size_t i = 0; i < values.size(); ++i)
      squares += std::pow(to.weights.at(name)[i] - values[i], 2);
  return std::sqrt(squares);
}

TEST(KnownBugs, AClippedStepIsAsLongAsTheLimit) {
  EngineOptions options = plain_descent();
  const Learned before = learn(options, 0), free = learn(options, 1);
  const double rate = step_input(options, 0).learning_rate, norm = free.of[0][0].gradient_norm;
  EXPECT_NEAR(length_of_change(before.trained, free.trained) / (rate * norm), 1, 1e-9);
  for (const double share : {0.25, 2.0}) {
    options.clip = norm * share;
    const Learned clipped = learn(options, 1);
    EXPECT_EQ(clipped.of[0][0].gradient_norm, norm);
    EXPECT_NEAR(length_of_change(before.trained, clipped.trained) / (rate * norm),
                std::min(share, 1.0), 1e-9);
  }
}

// Multiplying by powers of two and dividing again is exact.
TEST(KnownBugs, AScaledLossChangesNoBit) {
  for (const double clip : {0.0, 0.05}) {
    EngineOptions options = plain_descent(DataType::float32);
    options.clip = clip;
    const Trained expected = train(options, 3);
    options.scales_loss = true;
    options.loss_scaler.initial = 1024;
    expect_same_bits(options, expected, 3, "clip " + std::to_string(clip));
  }
}

TEST(KnownBugs, WeightDecayIsOfMatricesOnly) {
  EngineOptions options = plain_descent();
  options.model.architecture = Architecture::gpt2;
  options.model.kv_heads = options.model.heads;
  const Trained without = train(options, 1);
  options.optimizer.weight_decay = 0.5;
  const Trained with = train(options, 1);
  for (const auto& [name, values] : without.weights) {
    const bool decays = name.find("norm") == std::string::npos && !name.ends_with(".bias");
    EXPECT_EQ(values != with.weights.at(name), decays) << name;
  }
}

// The first stage's activations overflow on their way back, the last stage's do not: what only one
// rank has seen, all must act on.
TEST(KnownBugs, AnOverflowOnOneRankSkipsTheStepOnAll) {
  EngineOptions options = two_layers(DataType::float16);
  options.mesh.pp = 2;
  options.scales_loss = true;
  options.loss_scaler.initial = 65536;
  options.loss_scaler.hysteresis = 1;
  // What goes forward stays as large, and what comes back between the two overflows.
  const auto unbalance = [](Engine& engine) {
    engine.visit_masters([](const MasterPlace& place) {
      const std::string& name = place.parameter->name;
      const bool up = name == "model.layers.0.mlp.up_proj.weight";
      if (!up && name != "model.layers.0.mlp.down_proj.weight") return;
      for (float& value : place.value.span<float>()) value *= up ? 1e-4F : 1e4F;
    });
  };
  const Learned before = learn(options, 0, unbalance), after = learn(options, 1, unbalance);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(after.of[rank][0].skipped) << rank;
    EXPECT_TRUE(std::isfinite(after.of[rank][0].loss)) << rank;
    EXPECT_EQ(after.steps_done[rank], 0) << rank;
  }
  EXPECT_TRUE(after.trained.weights == before.trained.weights);
}

TEST(KnownBugs, SixteenBitsLearnLikeThirtyTwo) {
  EngineOptions options = two_layers(DataType::float32);
  const Trained wide = train(options, 12);
  options.type = DataType::bfloat16;
  const Trained narrow = train(options, 12);
  EXPECT_LT(difference(narrow.losses, wide.losses), 0.01);
  EXPECT_LT(narrow.losses.back(), narrow.losses.front() - 0.2);
  options.mesh.dp_shard = 2;
  options.data.zero = Zero::optimizer;
  expect_same_bits(options, narrow, 12, "shared by two");
}

// ---- Corners of layouts ----

// Extents that two ranks cannot halve: the last part of a parameter is shorter.
TEST(KnownBugs, UnevenPartsLoseNothing) {
  EngineOptions options = two_layers(DataType::float32);
  options.model.hidden = 33;
  const Trained expected = train(options, 3);
  options.mesh.dp_shard = 2;
  for (const Zero zero : {Zero::optimizer, Zero::values}) {
    options.data.zero = zero;
    expect_same_bits(options, expected, 3, "zero " + std::to_string(static_cast<int>(zero)));
  }
}

TEST(KnownBugs, HoweverLongValuesStayTheyAreThoseOfTheStep) {
  EngineOptions options = two_layers(DataType::float32);
  const Trained expected = train(options, 3);
  options.mesh.dp_shard = 2;
  options.data.zero = Zero::values;
  for (const Reshard reshard : {Reshard::automatic, Reshard::always, Reshard::never})
    for (const int prefetch : {0, 2}) {
      options.data.reshard = reshard;
      options.data.prefetch = prefetch;
      expect_same_bits(options, expected, 3,
                       "reshard " + std::to_string(static_cast<int>(reshard)));
    }
}

TEST(KnownBugs, RecomputingChangesNoBit) {
  EngineOptions options = small_options();
  const Trained expected = train(options, 2);
  for (const RecomputePolicy policy :
       {RecomputePolicy{Recompute::selective, 1}, RecomputePolicy{Recompute::full, 1},
        RecomputePolicy{Recompute::full, 2}, RecomputePolicy{Recompute::full, 3}}) {
    options.recompute = policy;
    expect_same_bits(options, expected, 2, "every " + std::to_string(policy.every));
  }
}

// pp, dp_replicate, dp_shard, tp, ep.
struct Layout {
  std::string name;
  Mesh mesh;
  std::function<void(EngineOptions&)> change = {};  // of the model: for one process, too
};

class SmallLayouts : public testing::TestWithParam<Layout> {};

TEST_P(SmallLayouts, TrainWhatOneProcessTrains) {
  EngineOptions options = two_layers(DataType::float64);
  if (GetParam().change) GetParam().change(options);
  const Trained expected = train(options, 3);
  options.mesh = GetParam().mesh;
  if (options.mesh.dp_shard > 1) options.data.zero = Zero::values;
  if (GetParam().name.ends_with("_zb")) options.schedule = "zb-h1";
  options.sequence_parallel = GetParam().name.ends_with("_sp");
  const Trained trained = train(options, 3);
  EXPECT_LT(difference(trained.losses, expected.losses), 1e-11);
  EXPECT_LT(difference(trained.norms, expected.norms), 1e-9);
  EXPECT_LT(weight_difference(trained, expected), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, SmallLayouts,
    testing::Values(
        Layout{"dp2", mesh_of(1, 2, 1, 1)}, Layout{"hsdp2x2", mesh_of(1, 2, 2, 1)},
        Layout{"tp2", mesh_of(1, 1, 1, 2)}, Layout{"tp2_sp", mesh_of(1, 1, 1, 2)},
        Layout{"pp2", mesh_of(2, 1, 1, 1)}, Layout{"pp2_zb", mesh_of(2, 1, 1, 1)},
        Layout{"pp2_uneven", mesh_of(2, 1, 1, 1), [](EngineOptions& o) { o.model.layers = 3; }},
        Layout{"pp2_tied", mesh_of(2, 1, 1, 1), [](EngineOptions& o) { o.model.tied = true; }},
        Layout{"tp2_one_kv_head", mesh_of(1, 1, 1, 2),
               [](EngineOptions& o) { o.model.kv_heads = 1; }},
        Layout{"ep2", mesh_of(1, 2, 1, 1, 2), [](EngineOptions& o) { o = mixture(o); }}),
    [](const testing::TestParamInfo<Layout>& layout) { return layout.param.name; });

// ---- Runs ----

class KnownBugsOfRuns : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tutti_known_bugs_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    // 64 windows of 16 tokens, no two alike, and one token more.
    std::string text;
    const Philox random(key_of(3, "text"));
    for (std::uint64_t i = 0; i < 64 * 16 + 1; ++i)
      text += static_cast<char>('a' + random(i, 0)[0] % 26);
    std::ofstream(folder_ + "/text.txt") << text;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  RunConfig config() const {
    RunConfig run;
    run.data.train = {folder_ + "/text.txt"};
    run.data.seq_len = 16;
    run.data.held_out = 0;
    run.train.steps = 6;
    run.train.global_batch = 8;
    run.train.micro_batch = 2;
    run.train.gemm = "builtin";
    run.optim.rate.warmup_steps = 3;
    run.optim.rate.peak = 3e-3;
    return run;
  }

  std::string in(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST_F(KnownBugsOfRuns, TheLearningRateFollowsStepsNotMicroBatches) {
  const RunConfig run = config();
  auto data = RunData::open(run);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  for (std::int64_t step = 0; step < run.train.steps; ++step)
    EXPECT_EQ((*data)->step(step, 4).learning_rate,
              learning_rate(run.optim.rate, step, run.train.steps));
}

TEST_F(KnownBugsOfRuns, StepsReadEachWindowOnceAnEpoch) {
  const RunConfig run = config();
  auto data = RunData::open(run);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  std::multiset<std::vector<std::int32_t>> rows;
  std::vector<std::int32_t> tokens(2 * 16), targets(tokens.size());
  for (std::int64_t step = 0; step < 8; ++step) {
    const StepInput input = (*data)->step(step, 4);
    EXPECT_EQ(input.targets, 8 * 16);
    for (std::int64_t number = 0; number < 4; ++number) {
      input.fill(number, tokens, targets);
      rows.emplace(tokens.begin(), tokens.begin() + 16);
      rows.emplace(tokens.begin() + 16, tokens.end());
    }
  }
  EXPECT_EQ(rows.size(), 64u);
  EXPECT_EQ(std::set(rows.begin(), rows.end()).size(), 64u);
}

void train_run(const RunConfig& run) {
  on_ranks(1, [&run](Communicator& world) {
    const RunOutcome outcome = train(run, world);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  });
}

void expect_equal_checkpoints(const std::string& a, const std::string& b) {
  const auto differences = compare_checkpoints(a, b);
  ASSERT_TRUE(differences.ok()) << differences.status().to_string();
  for (const TensorDifference& difference : *differences)
    ADD_FAILURE() << difference.name << " " << difference.problem << ": " << difference.differing
                  << " of " << difference.count << " elements differ";
}

TEST_F(KnownBugsOfRuns, AResumedRunIsTheOneThatWentOn) {
  RunConfig run = config();
  run.checkpoint.dir = in("whole");
  run.checkpoint.every = 3;
  run.checkpoint.keep = 0;
  train_run(run);
  run.checkpoint.dir = in("resumed");
  run.checkpoint.resume = in("whole/step-00000003");
  train_run(run);
  expect_equal_checkpoints(in("whole/step-00000006"), in("resumed/step-00000006"));
}

// Trains a step where `steps` asks for it, and writes a checkpoint; `from` is one to begin with.
void write_checkpoint(const EngineOptions& options, const std::string& from, int steps,
                      const std::string& folder) {
  on_ranks(options.mesh.world(), [&](Communicator& world) {
    auto engine = Engine::make(world, options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    ASSERT_TRUE((*engine)->initialise(5).ok());
    CheckpointState state;
    state.step = state.optimizer_steps = steps;
    state.loss_scaler = (*engine)->loss_scaler().state();
    if (!from.empty()) {
      auto loaded = load_checkpoint(from, **engine);
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      state = *loaded;
    }
    for (int step = 0; step < steps; ++step)
      ASSERT_TRUE((*engine)->step(step_input(options, step)).ok());
    ASSERT_TRUE((*engine)->data_parallel().settle_values().ok());
    CheckpointWriter writer(**engine, {folder, 0, false, ""});
    const Status status = writer.begin(state);
    ASSERT_TRUE(status.ok()) << status.to_string();
  });
}

// Drawn weights are the same in every layout, and so must the files be; a trained checkpoint goes
// through tensor-parallel ranks, each with its rows or columns, and comes out as it was.
TEST_F(KnownBugsOfRuns, CheckpointsKnowNoLayout) {
  const EngineOptions alone = two_layers(DataType::float32);
  EngineOptions shared = alone;
  shared.mesh.tp = 2;
  write_checkpoint(alone, "", 0, in("alone"));
  write_checkpoint(shared, "", 0, in("shared"));
  expect_equal_checkpoints(in("alone/step-00000000"), in("shared/step-00000000"));
  write_checkpoint(alone, "", 2, in("alone"));
  write_checkpoint(shared, in("alone/step-00000002"), 0, in("shared"));
  expect_equal_checkpoints(in("alone/step-00000002"), in("shared/step-00000002"));
}

TEST_F(KnownBugsOfRuns, ReshardedModelsAreStillTied) {
  EngineOptions options = two_layers(DataType::float32);
  options.model.tied = true;
  write_checkpoint(options, "", 0, in("tied"));
  const Status status = reshard(in("tied/step-00000000"), in("plain"), {});
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto config = read_model_config(in("plain"));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config->tied);
  const auto weights = WeightFolder::open(in("plain"));
  ASSERT_TRUE(weights.ok());
  EXPECT_TRUE(check_weights(*weights, *config).ok());
  EXPECT_EQ(weights->find("lm_head.weight"), nullptr);
}

}  // namespace
}  // namespace tutti::training::test
