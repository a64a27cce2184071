// layout_world.hpp: trains a small model in a given layout, with ranks as threads, and says what
// came out: losses, norms and whole weights, for layouts to be compared by.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/engine/engine.hpp"
#include "training/engine/whole_weights.hpp"
#include "training/modules/part_runs.hpp"
#include "training/tensor/element.hpp"
#include "training/tensor/philox.hpp"
#include "tutti/communicator.hpp"

namespace tutti::training::test {

struct Trained {
  std::vector<double> losses, norms, balance;
  WholeWeights weights;
};

// What a test looks at on each rank after the last step, one rank at a time.
using Inspect = std::function<void(int rank, Engine& engine)>;

// The same tokens for a step's micro-batch in every layout: a noisy walk that can be learnt.
inline void fill_micro_batch(const EngineOptions& options, std::int64_t step, std::int64_t number,
                             std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  const Philox random(key_of(99, "tokens"));
  const std::int64_t sequence = options.sequence;
  const auto vocabulary = static_cast<std::uint64_t>(options.model.vocabulary);
  for (std::size_t row = 0; row < tokens.size() / static_cast<std::size_t>(sequence); ++row) {
    const auto stream = static_cast<std::uint64_t>((step * options.micro_batches + number) *
                                                   options.micro_batch_rows) +
                        row;
    std::uint64_t token = random(0, stream)[0] % vocabulary;
    for (std::int64_t t = 0; t < sequence; ++t) {
      const std::size_t at = row * static_cast<std::size_t>(sequence) + static_cast<std::size_t>(t);
      tokens[at] = static_cast<std::int32_t>(token);
      const auto words = random(static_cast<std::uint64_t>(t) + 1, stream);
      token = words[0] % 4 == 0 ? words[1] % vocabulary : (token * 5 + 3) % vocabulary;
      targets[at] = static_cast<std::int32_t>(token);
    }
  }
}

inline StepInput step_input(const EngineOptions& options, std::int64_t step) {
  StepInput input;
  input.fill = [&options, step](std::int64_t number, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets) {
    fill_micro_batch(options, step, number, tokens, targets);
  };
  input.targets = options.micro_batches * options.micro_batch_rows * options.sequence;
  input.learning_rate = 3e-3;
  return input;
}

inline void collect_weights(Engine& engine, std::mutex& mutex, Trained& trained) {
  ASSERT_TRUE(engine.data_parallel().settle_values().ok());
  const std::lock_guard lock(mutex);
  add_weights(engine, trained.weights);
}

inline void run_rank(Communicator& world, const EngineOptions& options, int steps,
                     std::mutex& mutex, Trained& trained, const Inspect& inspect,
                     const Inspect& prepare) {
  auto engine = Engine::make(world, options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  ASSERT_TRUE((*engine)->initialise(7).ok());
  if (prepare) prepare(world.rank(), **engine);
  for (int step = 0; step < steps; ++step) {
    auto result = (*engine)->step(step_input(options, step));
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    if (world.rank() != 0) continue;
    trained.losses.push_back(result->loss);
    trained.norms.push_back(result->gradient_norm);
    trained.balance.push_back(result->balance_loss);
  }
  collect_weights(**engine, mutex, trained);
  if (!inspect) return;
  const std::lock_guard lock(mutex);
  inspect(world.rank(), **engine);
}

// Trains `steps` steps with the ranks that the mesh asks for. `prepare` is called on each rank, by
// its thread, before the first step.
inline Trained train(const EngineOptions& options, int steps, const Inspect& inspect = {},
                     CommunicatorOptions communication = {}, const Inspect& prepare = {}) {
  Trained trained;
  std::mutex mutex;
  if (communication.reduce_order.empty()) communication.reduce_order = "rank_tree";
  auto worlds = Communicator::for_threads(options.mesh.world(), communication);
  EXPECT_TRUE(worlds.ok()) << worlds.status().to_string();
  if (!worlds.ok()) return trained;
  std::vector<std::thread> ranks;
  for (Communicator& world : *worlds)
    ranks.emplace_back([&] {
      run_rank(world, options, steps, mutex, trained, inspect, prepare);
      if (::testing::Test::HasFatalFailure()) world.abort();
    });
  for (std::thread& rank : ranks) rank.join();
  return trained;
}

inline Mesh mesh_of(int pp, int replicate, int shard, int tp, int ep = 1) {
  Mesh made;
  made.pp = pp;
  made.dp_replicate = replicate;
  made.dp_shard = shard;
  made.tp = tp;
  made.ep = ep;
  return made;
}

// A model small enough for many layouts: 2 layers unless a pipeline needs more.
inline EngineOptions small_options(DataType type = DataType::float32) {
  EngineOptions options;
  options.model.vocabulary = 61;
  options.model.hidden = 32;
  options.model.layers = 4;
  options.model.heads = 4;
  options.model.kv_heads = 2;
  options.model.head_size = 8;
  options.model.intermediate = 48;
  options.model.positions = 64;
  options.type = type;
  options.gemm = "builtin";
  options.micro_batch_rows = 1;
  options.sequence = 12;
  options.micro_batches = 8;
  return options;
}

// The largest relative difference of losses, and of weights by the norm of their difference.
inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double scale = std::max(std::abs(a[i]), std::abs(b[i]));
    if (scale > 0) worst = std::max(worst, std::abs(a[i] - b[i]) / scale);
    if (!(std::isfinite(a[i]) && std::isfinite(b[i]))) worst = 1e300;
  }
  return worst;
}

inline double weight_difference(const Trained& a, const Trained& b) {
  return training::weight_difference(a.weights, b.weights);
}

}  // namespace tutti::training::test
