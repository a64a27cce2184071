// weights.cc: reading; see weights.hpp.
#include "training/model/weights.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "training/architecture/bounded_json.hpp"
#include "training/architecture/names.hpp"
#include "training/files/whole_file.hpp"
#include "training/model/strided.hpp"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::size_t kIndexMax = std::size_t{64} << 20;
constexpr std::size_t kConfigMax = std::size_t{1} << 20;

Status corrupt(std::string text) { return {StatusCode::corrupt_data, std::move(text)}; }

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string inside(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

std::string text_of(const Extents& extents) {
  std::string text;
  for (const std::int64_t extent : extents)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

Extents extents_of(const Shape& shape) {
  Extents made;
  for (std::size_t i = 0; i < shape.rank(); ++i) made.push_back(shape[i]);
  return made;
}

bool is_floating_here(const std::optional<DataType>& type) {
  return type == DataType::float64 || type == DataType::float32 || type == DataType::float16 ||
         type == DataType::bfloat16;
}

Status missing(const WeightFolder& folder, const FilePlace& place) {
  return corrupt(fmt::format("{} has no tensor \"{}\"; nearest: {}", folder.path(), place.tensor,
                             shown(nearest_text(place.tensor, folder.names()))));
}

// A parameter's tensor in the files, known to have the right extents and a type that we read.
struct Found {
  const SafetensorsEntry* entry = nullptr;
  FilePlace place;
};

Result<Found> find_parameter(const WeightFolder& folder, const ModelConfig& config,
                             std::string_view name, const Shape& whole_shape) {
  Result<FilePlace> place = file_place(config, name);
  if (!place.ok()) return place.status();
  const SafetensorsEntry* entry = folder.find(place->tensor);
  if (entry == nullptr) entry = folder.find(place->bare_tensor);
  if (entry == nullptr) return missing(folder, *place);
  const Extents wanted = extents_of(place->file_shape(whole_shape));
  if (entry->extents != wanted)
    return corrupt(fmt::format("{}: tensor \"{}\" is {}; the model's config needs {}",
                               folder.path(), entry->name, text_of(entry->extents),
                               text_of(wanted)));
  if (!is_floating_here(entry->type))
    return corrupt(fmt::format("{}: tensor \"{}\" is of {}; weights are of F64, F32, F16 or BF16",
                               folder.path(), entry->name, entry->type_name));
  return Found{entry, std::move(place).value()};
}

// The part of a parameter as a matrix. A vector is one row.
struct PartMatrix {
  std::int64_t row = 0, column = 0;  // where it begins in the whole
  std::int64_t whole_columns = 0;
  std::int64_t columns = 0;  // of the part
};

PartMatrix part_matrix(const Parameter& parameter) {
  const Shape& whole = parameter.whole_shape;
  const Part& part = parameter.part;
  TRAINING_CHECK(whole.rank() == 1 || whole.rank() == 2, "weights are vectors or matrices");
  TRAINING_CHECK(part.dimension < whole.rank() && part.begin >= 0 && part.length >= 0 &&
                     part.begin + part.length <= whole[part.dimension],
                 "a part within the whole");
  if (whole.rank() == 1) return {0, part.begin, whole[0], part.length};
  if (part.dimension == 0) return {part.begin, 0, whole[1], whole[1]};
  return {0, part.begin, whole[1], part.length};
}

Strided strided_of(const Found& found, const Parameter& parameter, const PartMatrix& matrix) {
  // Only read, as a source.
  auto* data = const_cast<std::byte*>(found.entry->bytes.data());
  Strided made{data, *found.entry->type};
  const Shape& whole = parameter.whole_shape;
  const std::int64_t outputs_before = found.place.piece * whole[0];
  if (whole.rank() == 1) {
    made.first = outputs_before + matrix.column;
  } else if (found.place.transposed) {
    made.row_stride = 1;
    made.column_stride = found.place.pieces * whole[0];
    made.first = outputs_before + matrix.row + matrix.column * made.column_stride;
  } else {
    made.row_stride = matrix.whole_columns;
    made.first = (outputs_before + matrix.row) * made.row_stride + matrix.column;
  }
  return made;
}

}  // namespace

Status WeightFolder::add_file(const std::string& path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file.ok()) return file.status();
  files_.push_back(std::move(file).value());
  return {};
}

// {"metadata": {"total_size": 123}, "weight_map": {"TENSOR": "FILE", ...}}
Status WeightFolder::add_indexed(const std::string& index_path) {
  const Result<std::string> text = read_text_file(index_path, kIndexMax);
  if (!text.ok()) return text.status();
  const Result<nlohmann::json> index = parse_json_object(*text, index_path, {kIndexMax, 8});
  if (!index.ok()) return index.status();
  const auto map = index->find("weight_map");
  if (map == index->end() || !map->is_object())
    return corrupt(index_path + ": \"weight_map\" must be an object");
  std::map<std::string, std::size_t> opened;  // to the file's place in files_
  for (const auto& item : map->items()) {
    if (!item.value().is_string() || !is_plain_name(item.value().get_ref<const std::string&>()))
      return corrupt(fmt::format("{}: tensor \"{}\" must have the name of a file in the folder",
                                 index_path, shown(item.key())));
    const std::string& name = item.value().get_ref<const std::string&>();
    if (opened.count(name) == 0) {
      if (Status status = add_file(inside(path_, name)); !status.ok()) return status;
      opened[name] = files_.size() - 1;
    }
    const SafetensorsEntry* entry = files_[opened[name]].find(item.key());
    if (entry == nullptr)
      return corrupt(fmt::format("{} says that {} has tensor \"{}\", and it has not", index_path,
                                 shown(name), shown(item.key())));
    entries_[item.key()] = entry;
  }
  return {};
}

Result<WeightFolder> WeightFolder::open(const std::string& path) {
  WeightFolder made(path);
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const std::string single = is_folder ? inside(path, kSingle) : path;
  const std::string index = inside(path, kIndex);
  if (is_folder && !exists(single)) {
    if (!exists(index))
      return Status(StatusCode::system_error,
                    fmt::format("{} has neither {} nor {}", path, kSingle, kIndex));
    if (Status status = made.add_indexed(index); !status.ok()) return status;
    return made;
  }
  if (Status status = made.add_file(single); !status.ok()) return status;
  for (const SafetensorsEntry& entry : made.files_[0].entries()) made.entries_[entry.name] = &entry;
  return made;
}

const SafetensorsEntry* WeightFolder::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second;
}

std::vector<std::string> WeightFolder::names() const {
  std::vector<std::string> made;
  for (const auto& entry : entries_) made.push_back(entry.first);
  return made;
}

Result<ModelConfig> read_model_config(const std::string& folder) {
  const std::string path = inside(folder, "config.json");
  const Result<std::string> text = read_text_file(path, kConfigMax);
  if (!text.ok()) return text.status();
  Result<ModelConfig> config = parse_model_config(*text);
  if (!config.ok()) return config.status().with_context(folder);
  return config;
}

Status load_range(const WeightFolder& folder, const ModelConfig& config, const Parameter& parameter,
                  std::int64_t begin, std::int64_t end, const Tensor& out) {
  const PartMatrix matrix = part_matrix(parameter);
  TRAINING_CHECK(begin >= 0 && begin <= end && end <= parameter.count(), "a range of the part");
  TRAINING_CHECK(out.count() == end - begin, "as many elements as the range has");
  const Result<Found> found = find_parameter(folder, config, parameter.name, parameter.whole_shape);
  if (!found.ok()) return found.status();
  if (begin == end) return {};
  const Strided from = strided_of(*found, parameter, matrix);
  const Strided to{out.data(), out.type(), -begin, matrix.columns, 1};
  copy_strided(from, to, {begin, end, matrix.columns});
  return {};
}

Status load_parameter(const WeightFolder& folder, const ModelConfig& config,
                      const Parameter& parameter, const Tensor& out) {
  return load_range(folder, config, parameter, 0, parameter.count(), out);
}

Status check_weights(const WeightFolder& folder, const ModelConfig& config) {
  for (const NamedShape& weight : parameter_shapes(config)) {
    const Result<Found> found = find_parameter(folder, config, weight.name, weight.shape);
    if (!found.ok()) return found.status();
  }
  return {};
}

}  // namespace tutti::training
