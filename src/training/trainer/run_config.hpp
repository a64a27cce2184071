// run_config.hpp: all that a training run is told: a run.toml with overrides, as one plain struct.
//
// Knows nothing of ranks or models: whether degrees make up the world, or a preset exists, is said
// by those who know. What each key means stands in docs/training-config.md, and in the table in
// run_config_keys.cc, from which reading, printing and that document are made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "training/optim/learning_rate.hpp"
#include "training/optim/optimizer.hpp"
#include "training/parallel/reshard.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::training {

// Where a run's model comes from: exactly one of `hf` and `preset` is not empty.
struct ModelSource {
  std::string hf;
  std::string preset = "tiny";
  bool load_weights = true;
  double capacity_factor = 0;  // see ModelConfig

  friend bool operator==(const ModelSource&, const ModelSource&) = default;
};

struct DataConfig {
  std::vector<std::string> train;  // empty: the default corpus
  std::int64_t seq_len = 256;      // tokens
  double held_out = 0.1;           // fraction

  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

struct TrainConfig {
  std::int64_t steps = 100;
  std::int64_t global_batch = 8;  // rows for each optimizer step, of all ranks
  std::int64_t micro_batch = 1;   // rows
  std::int64_t seed = 1;
  DataType dtype = DataType::float32;
  std::string gemm = "auto";
  bool deterministic = true;
  std::int64_t eval_every = 0;  // steps; 0: never
  std::int64_t eval_batches = 4;

  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

struct OptimConfig {
  OptimizerSettings optimizer;
  LearningRateSettings rate;
  double clip = 1;  // 0: none

  friend bool operator==(const OptimConfig&, const OptimConfig&) = default;
};

struct ParallelConfig {
  static constexpr std::int64_t kRest = -1;  // what the other degrees leave of the world

  std::int64_t pp = 1;
  std::int64_t dp_replicate = 1;
  std::int64_t dp_shard = kRest;
  std::int64_t tp = 1;
  std::int64_t ep = 1;
  std::int64_t cp = 1;
  std::int64_t zero = 0;
  bool sequence_parallel = false;
  std::string schedule = "1f1b";    // a name, or "file:" and a path
  std::int64_t virtual_stages = 1;  // of each rank; the key is `virtual`
  Reshard reshard_after_forward = Reshard::automatic;
  bool keep_last_block = true;
  std::int64_t prefetch = 1;  // blocks
  double bucket_mb = 25;
  bool overlap = true;
  std::string algorithm;  // empty: the planner chooses
  std::string transport = "auto";

  friend bool operator==(const ParallelConfig&, const ParallelConfig&) = default;
};

struct RecomputeConfig {
  enum class Kind : unsigned char { none, selective, full, every } kind = Kind::none;
  std::int64_t blocks = 1;  // of every: from each so many blocks one input is kept

  friend bool operator==(const RecomputeConfig&, const RecomputeConfig&) = default;
};

struct MemoryConfig {
  RecomputeConfig recompute;

  friend bool operator==(const MemoryConfig&, const MemoryConfig&) = default;
};

struct CommConfig {
  double timeout_s = 600;
  bool checksums = false;

  friend bool operator==(const CommConfig&, const CommConfig&) = default;
};

struct CheckpointConfig {
  std::string dir;         // empty: no checkpoints
  std::int64_t every = 0;  // steps; 0: only at the end
  std::int64_t keep = 2;   // the last so many; 0: all
  bool async = true;
  std::string resume = "auto";  // or "never", or a checkpoint's path

  friend bool operator==(const CheckpointConfig&, const CheckpointConfig&) = default;
};

struct LogConfig {
  std::string dir;         // empty: no files
  std::int64_t every = 1;  // steps
  bool jsonl = true;
  bool tensorboard = false;
  std::string trace;  // empty: none

  friend bool operator==(const LogConfig&, const LogConfig&) = default;
};

struct RunConfig {
  ModelSource model;
  DataConfig data;
  TrainConfig train;
  OptimConfig optim;
  ParallelConfig parallel;
  MemoryConfig memory;
  CommConfig comm;
  CheckpointConfig checkpoint;
  LogConfig log;

  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

inline constexpr std::size_t kRunConfigBytesMax = std::size_t{1} << 20;

// Reads a run.toml's text, with `overrides` ("train.steps=10", as after --set) applied over it.
// `name` is what errors call the text. Keys that are absent have their defaults.
//
// Errors  invalid_argument, with one line for each thing that is wrong: an unknown key with the
//         nearest one, a wrong type, a value out of range, keys that exclude each other.
Result<RunConfig> parse_run_config(std::string_view text, std::string_view name,
                                   std::span<const std::string> overrides = {});

// The same for a file. Errors  system_error, too, when it cannot be read.
Result<RunConfig> read_run_config(const std::string& path,
                                  std::span<const std::string> overrides = {});

// All keys with their values, as TOML that parses to an equal struct.
std::string to_toml(const RunConfig& config);

// Whether the values are in range and go together. parse_run_config() has made sure of it.
// Errors  as those of parse_run_config().
Status check(const RunConfig& config);

// Micro-batches that each data-parallel rank computes in one optimizer step:
// global_batch / (micro_batch * data_parallel).
// Errors  invalid_argument with the equation, when that is not a whole number.
Result<std::int64_t> accumulation_steps(const TrainConfig& train, std::int64_t data_parallel);

// What train.dtype accepts. Errors  invalid_argument, with what there is.
Result<DataType> parse_run_type(std::string_view name);

// All sections and keys with type, default and meaning, as Markdown; the document holds the same.
std::string run_config_reference();

}  // namespace tutti::training
