// weights.hpp: between a Hugging Face model folder and parameters: each rank reads just the
// elements that it holds, converted to the type that it holds them in; and a whole model is written
// one tensor at a time.
//
// Knows nothing of ranks: a Parameter says which part is wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/architecture/config.hpp"
#include "training/architecture/names.hpp"
#include "training/model/safetensors.hpp"
#include "training/modules/parameter.hpp"
#include "training/tensor/tensor.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// The tensors of a model, in one file or several: what "model.safetensors" has, or what the files
// have that "model.safetensors.index.json" names.
//
// Threading  reading from any thread. Copies share the mappings.
class WeightFolder {
 public:
  // `path`: a folder, or one .safetensors file.
  // Errors  system_error, corrupt_data: of any of the files, named; an index that names a file
  //         outside of the folder, or a tensor that its file does not have.
  static Result<WeightFolder> open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsEntry* find(std::string_view name) const;  // null when there is none
  std::vector<std::string> names() const;                     // ascending

 private:
  explicit WeightFolder(std::string path) : path_(std::move(path)) {}
  Status add_file(const std::string& path);
  Status add_indexed(const std::string& index_path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsEntry*, std::less<>> entries_;  // into files_
};

// The config.json of a folder. Errors  those of parse_model_config(); system_error.
Result<ModelConfig> read_model_config(const std::string& folder);

// Fills `out` with elements [begin, end) of the rank's part of `parameter`, in the order of the
// part's elements, converted to out's type. Of out's own type: bit by bit.
// Requires  out has end - begin elements of a floating type.
// Errors    corrupt_data: no such tensor, other extents, or a type that is not a floating one;
//           invalid_argument: the architecture has no such parameter.
Status load_range(const WeightFolder& folder, const ModelConfig& config, const Parameter& parameter,
                  std::int64_t begin, std::int64_t end, const Tensor& out);

// The same for the whole part.
Status load_parameter(const WeightFolder& folder, const ModelConfig& config,
                      const Parameter& parameter, const Tensor& out);

// Whether the folder has every parameter of the model, as load_range() wants it.
Status check_weights(const WeightFolder& folder, const ModelConfig& config);

struct SaveOptions {
  DataType type = DataType::float32;  // of the files' tensors
  std::uint64_t max_shard_bytes = 5'000'000'000;
};

// Gives a whole parameter, of any floating type. Asked once for each of parameter_shapes(), in that
// order, so that many ranks can gather each in step with the one that writes.
using WholeParameter = std::function<Result<Tensor>(const NamedShape& parameter)>;

// Writes config.json and the weights as transformers reads them: "model.safetensors", or numbered
// shards and an index if that would be longer than max_shard_bytes.
//
// Ensures  until all is written the folder has no weights that open: neither new nor those that
//          were there before.
// Errors   system_error; those of `whole`; invalid_argument: a type that is not a floating one.
Status save_model(const std::string& folder, const ModelConfig& config, const SaveOptions& options,
                  const WholeParameter& whole);

}  // namespace tutti::training
