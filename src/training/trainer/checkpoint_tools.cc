// checkpoint_tools.cc: see checkpoint_tools.hpp.
#include "training/trainer/checkpoint_tools.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "training/model/safetensors.hpp"
#include "training/report/text.hpp"
#include "training/tensor/element.hpp"
#include "training/trainer/checkpoint.hpp"
#include "training/trainer/checkpoint_state.hpp"

namespace tutti::training {
namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string extents_text(const Extents& extents) {
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

// Whether its elements are numbers that we compute with.
bool is_readable(const SafetensorsEntry& entry) {
  return entry.type && is_floating(*entry.type) && size_of(*entry.type) >= 2;
}

// Calls `f` with each element as a double; one that is not readable has none.
template <typename F>
void for_each_element(const SafetensorsEntry& entry, F&& f) {
  if (!is_readable(entry)) return;
  visit(*entry.type, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t at = 0; at + sizeof(T) <= entry.bytes.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, entry.bytes.data() + at, sizeof value);
      f(static_cast<double>(load(value)));
    }
  });
}

std::string describe(const std::string& name, const SafetensorsEntry& entry) {
  double sum = 0, squares = 0, count = 0;
  for_each_element(entry, [&](double value) {
    sum += value;
    squares += value * value;
    ++count;
  });
  const double mean = count > 0 ? sum / count : 0;
  const double deviation = count > 0 ? std::sqrt(std::max(0.0, squares / count - mean * mean)) : 0;
  return fmt::format("{:<56} {:>5} {:<16} mean {:>11.4e}  deviation {:>10.4e}\n", name,
                     entry.type_name, extents_text(entry.extents), mean, deviation);
}

// All tensors of a checkpoint by name; those of the optimizer's files with the file's name before.
// Lifetime of the entries: the files'.
struct Tensors {
  std::vector<WeightFolder> folders;
  std::vector<SafetensorsFile> files;
  std::map<std::string, const SafetensorsEntry*> entries;

  static Result<Tensors> of(const std::string& path);
};

Result<Tensors> Tensors::of(const std::string& path) {
  Tensors made;
  auto folder = WeightFolder::open(path);
  if (!folder.ok()) return folder.status();
  made.folders.push_back(std::move(*folder));
  for (const std::string& name : made.folders.front().names())
    made.entries[name] = made.folders.front().find(name);
  for (int number = 1; number <= 2; ++number) {
    const std::string file_path = path + "/" + checkpoint_file(number);
    if (!exists(file_path)) continue;
    auto file = SafetensorsFile::open(file_path);
    if (!file.ok()) return file.status();
    made.files.push_back(std::move(*file));
    for (const SafetensorsEntry& entry : made.files.back().entries())
      made.entries[fmt::format("moment_{} of {}", number, entry.name)] = &entry;
  }
  return made;
}

std::vector<double> elements(const SafetensorsEntry& entry) {
  std::vector<double> values;
  for_each_element(entry, [&](double value) { values.push_back(value); });
  return values;
}

TensorDifference compare(const std::string& name, const SafetensorsEntry& a,
                         const SafetensorsEntry& b) {
  TensorDifference made{name, {}, 0, 0, 0, 0};
  if (a.extents != b.extents) {
    made.problem = extents_text(a.extents) + " against " + extents_text(b.extents);
    return made;
  }
  if (!is_readable(a) || !is_readable(b)) {
    if (a.type_name != b.type_name)
      made.problem = fmt::format("{} against {}", a.type_name, b.type_name);
    else if (!std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()))
      made.problem = fmt::format("other bytes, of {}", a.type_name);
    return made;
  }
  const std::vector<double> left = elements(a), right = elements(b);
  double apart = 0, size = 0;
  made.count = static_cast<std::int64_t>(left.size());
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    // What is no number is far from everything but itself.
    if (std::memcmp(&left[i], &right[i], sizeof(double)) == 0) continue;
    ++made.differing;
    double difference = std::abs(left[i] - right[i]);
    if (std::isnan(difference)) difference = HUGE_VAL;
    made.largest = std::max(made.largest, difference);
    apart += difference * difference;
  }
  for (const double value : right) size += value * value;
  made.relative = apart > 0 ? std::sqrt(apart / size) : 0;
  return made;
}

// A tensor that lies in the file as the parameter is.
Status load_plain(const WeightFolder& weights, const Parameter& parameter, const Tensor& out) {
  const SafetensorsEntry* entry = weights.find(parameter.name);
  const Shape& whole = parameter.whole_shape;
  bool fits = entry && is_readable(*entry) && entry->extents.size() == whole.rank();
  for (std::size_t i = 0; fits && i < whole.rank(); ++i) fits = entry->extents[i] == whole[i];
  if (!fits)
    return Status(StatusCode::corrupt_data, fmt::format("{} has no {} of {}", weights.path(),
                                                        parameter.name, whole.to_string()));
  const std::vector<double> values = elements(*entry);
  visit(out.type(), [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < values.size(); ++i)
      out.as<T>()[i] = store<T>(static_cast<Wide<T>>(values[i]));
  });
  return {};
}

}  // namespace

Status load_whole(const WeightFolder& folder, const ModelConfig& config, const Parameter& parameter,
                  const Tensor& out) {
  return exists(folder.path() + "/state.json") ? load_plain(folder, parameter, out)
                                               : load_parameter(folder, config, parameter, out);
}

Result<std::string> describe_checkpoint(const std::string& path) {
  std::string text;
  if (exists(path + "/state.json")) {
    auto state = read_checkpoint_state(path);
    if (!state.ok()) return state.status();
    text += fmt::format("step {} ({} of the optimizer), computed in {}, written by {}\n",
                        state->step, state->optimizer_steps, state->type, state->layout);
  }
  auto config = read_model_config(path);
  if (config.ok())
    text += fmt::format("model: {} parameters, {} layers, hidden {}, vocabulary {}\n",
                        format_count(static_cast<double>(config->parameter_count())),
                        config->layers, config->hidden, config->vocabulary);
  auto tensors = Tensors::of(path);
  if (!tensors.ok()) return tensors.status();
  for (const auto& [name, entry] : tensors->entries) text += describe(name, *entry);
  return text;
}

Result<std::vector<TensorDifference>> compare_checkpoints(const std::string& a,
                                                          const std::string& b) {
  auto left = Tensors::of(a);
  if (!left.ok()) return left.status();
  auto right = Tensors::of(b);
  if (!right.ok()) return right.status();
  std::vector<TensorDifference> found;
  for (const auto& [name, entry] : left->entries) {
    const auto other = right->entries.find(name);
    TensorDifference difference{name, "only in " + a, 0, 0, 0, 0};
    if (other != right->entries.end()) difference = compare(name, *entry, *other->second);
    if (!difference.problem.empty() || difference.differing > 0) found.push_back(difference);
  }
  for (const auto& [name, entry] : right->entries)
    if (!left->entries.contains(name)) found.push_back({name, "only in " + b, 0, 0, 0, 0});
  return found;
}

Status reshard(const std::string& from, const std::string& to, const SaveOptions& options) {
  std::error_code ignored;
  if (std::filesystem::equivalent(from, to, ignored))
    return Status(StatusCode::invalid_argument, to + " is what is read: choose another folder");
  auto config = read_model_config(from);
  if (!config.ok()) return config.status();
  auto weights = WeightFolder::open(from);
  if (!weights.ok()) return weights.status();
  Arena arena;
  return save_model(to, *config, options, [&](const NamedShape& named) -> Result<Tensor> {
    Parameter parameter = whole_parameter(named.name, named.shape);
    const Tensor out(arena, MemoryKind::parameter, options.type, named.shape);
    const Status status = load_whole(*weights, *config, parameter, out);
    if (!status.ok()) return status;
    return out;
  });
}

}  // namespace tutti::training
