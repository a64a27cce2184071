// weights_save.cc: writing; see weights.hpp. Tensors of the files are made one at a time, each from
// the parameters that share it.
#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "training/architecture/names.hpp"
#include "training/files/whole_file.hpp"
#include "training/model/strided.hpp"
#include "training/model/weights.hpp"

namespace tutti::training {
namespace {

std::string inside(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

// One tensor of a file, and the parameters that it is made of.
struct FileTensor {
  struct Piece {
    NamedShape parameter;
    FilePlace place;
  };
  std::string name;
  Shape shape;
  std::vector<Piece> pieces;

  std::uint64_t bytes(DataType type) const {
    return static_cast<std::uint64_t>(shape.count()) * size_of(type);
  }
};

// In the order of parameter_shapes(), which has those that share a tensor next to each other.
Result<std::vector<FileTensor>> tensors_of(const ModelConfig& config) {
  std::vector<FileTensor> made;
  for (NamedShape& parameter : parameter_shapes(config)) {
    Result<FilePlace> place = file_place(config, parameter.name);
    if (!place.ok()) return place.status();
    if (made.empty() || made.back().name != place->tensor)
      made.push_back({place->tensor, place->file_shape(parameter.shape), {}});
    made.back().pieces.push_back({std::move(parameter), std::move(place).value()});
  }
  return made;
}

// Consecutive tensors, as many as fit; one that is larger than a shard has one of its own.
using Shard = std::span<const FileTensor>;

std::vector<Shard> split(const std::vector<FileTensor>& tensors, const SaveOptions& options) {
  std::vector<Shard> shards;
  std::size_t begin = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t more = tensors[i].bytes(options.type);
    if (i > begin && bytes + more > options.max_shard_bytes) {
      shards.push_back(Shard(tensors).subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  shards.push_back(Shard(tensors).subspan(begin));
  return shards;
}

std::string shard_name(std::size_t number, std::size_t shards) {
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", number + 1, shards);
}

// Puts a whole parameter where it belongs in the tensor of the file.
void place_piece(const FileTensor::Piece& piece, const Tensor& value, DataType type,
                 std::vector<std::byte>& bytes) {
  const Shape& shape = piece.parameter.shape;
  const std::int64_t columns = shape.rank() == 1 ? 1 : shape[1];
  const std::int64_t before = piece.place.piece * shape[0];
  const std::int64_t outputs = piece.place.pieces * shape[0];
  const Strided from{value.data(), value.type(), 0, columns, 1};
  const Strided to = piece.place.transposed
                         ? Strided{bytes.data(), type, before, 1, outputs}
                         : Strided{bytes.data(), type, before * columns, columns, 1};
  copy_strided(from, to, {0, shape.count(), columns});
}

Status write_tensor(const FileTensor& tensor, DataType type, const WholeParameter& whole,
                    SafetensorsOutput& output) {
  std::vector<std::byte> bytes(tensor.bytes(type));
  for (const FileTensor::Piece& piece : tensor.pieces) {
    const Result<Tensor> value = whole(piece.parameter);
    if (!value.ok()) return value.status();
    TRAINING_CHECK(value->count() == piece.parameter.shape.count(), "the whole parameter");
    place_piece(piece, *value, type, bytes);
  }
  return output.write(tensor.name, 0, bytes);
}

Status write_shard(const std::string& path, Shard shard, DataType type,
                   const WholeParameter& whole) {
  std::vector<SafetensorsPlan> plans;
  for (const FileTensor& tensor : shard) {
    SafetensorsPlan& plan = plans.emplace_back(SafetensorsPlan{tensor.name, type, {}});
    for (std::size_t i = 0; i < tensor.shape.rank(); ++i) plan.extents.push_back(tensor.shape[i]);
  }
  // transformers refuses files that do not say "pt", whoever wrote them.
  Result<SafetensorsLayout> layout = SafetensorsLayout::make(std::move(plans), {{"format", "pt"}});
  if (!layout.ok()) return layout.status().with_context(path);
  Result<SafetensorsOutput> output = SafetensorsOutput::create(path, std::move(layout).value());
  if (!output.ok()) return output.status();
  for (const FileTensor& tensor : shard)
    if (Status status = write_tensor(tensor, type, whole, *output); !status.ok()) return status;
  return output->commit();
}

std::string index_text(const std::vector<Shard>& shards, DataType type) {
  nlohmann::json map = nlohmann::json::object();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const FileTensor& tensor : shards[i]) {
      map[tensor.name] = shard_name(i, shards.size());
      total += tensor.bytes(type);
    }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}},
                                {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

// As torch and transformers call it; empty for what weights cannot be.
std::string_view torch_name(DataType type) {
  switch (type) {
    case DataType::float64:
      return "float64";
    case DataType::float32:
      return "float32";
    case DataType::float16:
      return "float16";
    case DataType::bfloat16:
      return "bfloat16";
    default:
      return "";
  }
}

}  // namespace

Status save_model(const std::string& folder, const ModelConfig& config, const SaveOptions& options,
                  const WholeParameter& whole) {
  const std::string_view type_name = torch_name(options.type);
  if (type_name.empty())
    return {StatusCode::invalid_argument,
            fmt::format("weights cannot be saved as {}", to_string(options.type))};
  if (Status status = check(config); !status.ok()) return status;
  const Result<std::vector<FileTensor>> tensors = tensors_of(config);
  if (!tensors.ok()) return tensors.status();
  const std::vector<Shard> shards = split(*tensors, options);

  const std::string index = inside(folder, "model.safetensors.index.json");
  if (Status status = make_folder(folder); !status.ok()) return status;
  for (const std::string& stale : {index, inside(folder, "model.safetensors")})
    if (Status status = remove_file(stale); !status.ok()) return status;
  const std::string config_path = inside(folder, "config.json");
  if (Status status = write_text_file(config_path, model_config_json(config, type_name));
      !status.ok())
    return status;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string path = inside(folder, shard_name(i, shards.size()));
    if (Status status = write_shard(path, shards[i], options.type, whole); !status.ok())
      return status;
  }
  if (shards.size() == 1) return {};
  return write_text_file(index, index_text(shards, options.type));
}

}  // namespace tutti::training
