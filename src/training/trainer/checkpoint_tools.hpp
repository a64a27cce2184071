// checkpoint_tools.hpp: what people do with checkpoints besides resuming: look, compare, convert.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/model/weights.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// What a checkpoint, or a folder of weights, has in it, as text: its state, and each tensor with
// type, extents, mean and deviation. Errors  system_error, corrupt_data.
Result<std::string> describe_checkpoint(const std::string& path);

struct TensorDifference {
  std::string name;                       // with the file's name where it is not of the weights
  std::string problem;                    // "only in A", "[2, 3] against [3, 2]"; empty: comparable
  std::int64_t differing = 0, count = 0;  // elements
  double largest = 0;                     // |a - b|
  double relative = 0;                    // |a - b| / |b| by Euclid's norm
};

// Every tensor that differs, weights and the optimizer's memory, in the order of names. Equal bits
// do not differ. Errors  system_error, corrupt_data.
Result<std::vector<TensorDifference>> compare_checkpoints(const std::string& a,
                                                          const std::string& b);

// Fills `out` with a whole parameter, from a checkpoint, whose names are ours whatever the
// architecture, or from a folder of Hugging Face, whose names are the architecture's.
// Requires  a parameter that is whole here. Errors  corrupt_data.
Status load_whole(const WeightFolder& folder, const ModelConfig& config, const Parameter& parameter,
                  const Tensor& out);

// Writes the weights of a checkpoint, or of a folder of weights, as a folder of Hugging Face, in
// files of at most options.max_shard_bytes. Errors  system_error, corrupt_data.
Status reshard(const std::string& from, const std::string& to, const SaveOptions& options);

}  // namespace tutti::training
