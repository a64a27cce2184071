// checkpoint_read.cc: reading checkpoints; see checkpoint.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "training/architecture/bounded_json.hpp"
#include "training/architecture/names.hpp"
#include "training/files/whole_file.hpp"
#include "training/model/safetensors.hpp"
#include "training/modules/part_runs.hpp"
#include "training/tensor/element.hpp"
#include "training/trainer/checkpoint_state.hpp"

namespace tutti::training {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStateBytesMax = 64 << 10;
constexpr std::int64_t kFormat = 1;

// The number in "step-00000050", or none.
std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return {};
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stopped != end || step < 0) return {};
  return step;
}

// Elements [begin, ...) of a parameter's part from the file's whole tensor.
Status read_part(const SafetensorsFile& file, const MasterPlace& place, const Tensor& out) {
  const SafetensorsEntry* entry = file.find(place.parameter->name);
  if (!entry)
    return Status(StatusCode::corrupt_data,
                  fmt::format("{} has no tensor {}", file.path(), place.parameter->name));
  const Shape& whole = place.parameter->whole_shape;
  bool same = entry->extents.size() == whole.rank() && entry->type;
  for (std::size_t i = 0; same && i < whole.rank(); ++i) same = entry->extents[i] == whole[i];
  if (!same)
    return Status(StatusCode::corrupt_data, fmt::format("{}: tensor {} is not {}", file.path(),
                                                        place.parameter->name, whole.to_string()));
  if (entry->type != DataType::float32 && entry->type != DataType::float64)
    return Status(StatusCode::corrupt_data,
                  fmt::format("{}: tensor {} is {}, not F32 or F64", file.path(),
                              place.parameter->name, entry->type_name));
  visit(*entry->type, [&](auto from_zero) {
    visit(out.type(), [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      for_each_run(*place.parameter, place.begin, place.begin + out.count(),
                   [&](const PartRun& run) {
                     for (std::int64_t i = 0; i < run.length; ++i) {
                       From value;
                       const auto at = static_cast<std::size_t>(run.in_whole + i) * sizeof(From);
                       std::memcpy(&value, entry->bytes.data() + at, sizeof(From));
                       out.as<To>()[run.in_part - place.begin + i] =
                           store<To>(static_cast<Wide<To>>(load(value)));
                     }
                   });
    });
  });
  return {};
}

}  // namespace

std::string checkpoint_file(int number) {
  return number == 0 ? "model.safetensors" : fmt::format("moment_{}.safetensors", number);
}

std::string optimizer_name(OptimizerKind kind) {
  return kind == OptimizerKind::adamw ? "adamw" : "sgd";
}

std::string checkpoint_state_json(const CheckpointState& state) {
  return nlohmann::ordered_json{{"format", kFormat},
                                {"step", state.step},
                                {"optimizer_steps", state.optimizer_steps},
                                {"loss_scale", state.loss_scaler.scale},
                                {"loss_scale_clean_steps", state.loss_scaler.clean_steps},
                                {"loss_scale_patience", state.loss_scaler.patience},
                                {"loss_scale_skipped", state.loss_scaler.skipped},
                                {"layout", state.layout},
                                {"type", state.type},
                                {"optimizer", state.optimizer},
                                {"moments", state.moments}}
             .dump(2) +
         "\n";
}

Result<CheckpointState> parse_checkpoint_state(std::string_view text) {
  const auto parsed = parse_json_object(text, "state.json", {kStateBytesMax, 1});
  if (!parsed.ok()) return parsed.status();
  const nlohmann::json& json = *parsed;
  const auto wrong = [](std::string_view what) {
    return Status(StatusCode::corrupt_data, fmt::format("state.json: {}", what));
  };
  // Of any other number the library would make an integer, too.
  for (const char* const key : {"format", "step", "optimizer_steps", "loss_scale_clean_steps",
                                "loss_scale_patience", "loss_scale_skipped", "moments"})
    if (const auto found = json.find(key); found != json.end() && !found->is_number_integer())
      return wrong(fmt::format("{} is no whole number", key));
  CheckpointState state;
  try {
    if (json.at("format").get<std::int64_t>() != kFormat)
      return wrong(fmt::format("format {} is not {}, which this program reads",
                               json.at("format").dump(), kFormat));
    json.at("step").get_to(state.step);
    json.at("optimizer_steps").get_to(state.optimizer_steps);
    json.at("loss_scale").get_to(state.loss_scaler.scale);
    json.at("loss_scale_clean_steps").get_to(state.loss_scaler.clean_steps);
    json.at("loss_scale_patience").get_to(state.loss_scaler.patience);
    json.at("loss_scale_skipped").get_to(state.loss_scaler.skipped);
    json.at("layout").get_to(state.layout);
    json.at("type").get_to(state.type);
    json.at("optimizer").get_to(state.optimizer);
    const auto moments = json.at("moments").get<std::int64_t>();
    if (moments < 0 || moments > 2)
      return wrong(fmt::format("moments {} is not 0, 1 or 2", moments));
    state.moments = static_cast<int>(moments);
  } catch (const nlohmann::json::exception& error) {
    return wrong(error.what());
  }
  if (state.step < 0 || state.optimizer_steps < 0 || state.optimizer_steps > state.step)
    return wrong(fmt::format("step {} with {} optimizer steps", state.step, state.optimizer_steps));
  return state;
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto step = step_of(at->path().filename().string());
    std::error_code ignored;
    if (step && fs::exists(at->path() / "state.json", ignored))
      found.emplace_back(*step, at->path().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (const auto& [step, path] : found) paths.push_back(path);
  return paths;
}

std::string newest_checkpoint(const std::string& folder) {
  const auto all = list_checkpoints(folder);
  return all.empty() ? std::string() : all.back();
}

void remove_old_checkpoints(const std::string& folder, std::int64_t keep, std::int64_t last) {
  if (keep <= 0) return;
  auto all = list_checkpoints(folder);
  std::erase_if(all, [last](const std::string& path) {
    return step_of(fs::path(path).filename().string()) > last;
  });
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    std::error_code ignored;
    fs::remove_all(all[i], ignored);
  }
}

Result<CheckpointState> read_checkpoint_state(const std::string& checkpoint) {
  auto text = read_text_file(checkpoint + "/state.json", kStateBytesMax);
  if (!text.ok()) return text.status();
  auto state = parse_checkpoint_state(*text);
  if (!state.ok()) return state.status().with_context(checkpoint);
  return state;
}

namespace {

// A checkpoint of another model has tensors that this one has not; those that it lacks, or that are
// of other extents, are found when they are read.
Status check_names(const SafetensorsFile& file, const ModelConfig& model) {
  std::set<std::string> known;
  for (const NamedShape& named : parameter_shapes(model)) known.insert(named.name);
  for (const SafetensorsEntry& entry : file.entries())
    if (!known.contains(entry.name))
      return Status(StatusCode::corrupt_data,
                    fmt::format("{} has a tensor {}, which the model of this run has not",
                                file.path(), entry.name));
  return {};
}

// Moments mean something to the optimizer that wrote them only.
Status check_moments(const std::string& checkpoint, const CheckpointState& state,
                     const OptimizerSettings& optimizer) {
  const auto needed = static_cast<int>(moment_count(optimizer));
  if (needed == 0) return {};
  const std::string name = optimizer_name(optimizer.kind);
  if (state.optimizer == name && state.moments >= needed) return {};
  return Status(StatusCode::invalid_argument,
                fmt::format("{} has {} moments, written by {}, but this run's {} needs {} of its "
                            "own: resume with the optimizer that the checkpoint is of",
                            checkpoint, state.moments, state.optimizer, name, needed));
}

}  // namespace

Result<CheckpointState> load_checkpoint(const std::string& checkpoint, Engine& engine) {
  auto state = read_checkpoint_state(checkpoint);
  if (!state.ok()) return state.status();
  const OptimizerSettings& optimizer = engine.options().optimizer;
  if (const Status wrong = check_moments(checkpoint, *state, optimizer); !wrong.ok()) return wrong;
  std::vector<SafetensorsFile> files;
  for (int number = 0; number <= static_cast<int>(moment_count(optimizer)); ++number) {
    auto file = SafetensorsFile::open(checkpoint + "/" + checkpoint_file(number));
    if (!file.ok()) return file.status();
    if (const Status wrong = check_names(*file, engine.options().model); !wrong.ok()) return wrong;
    files.push_back(std::move(*file));
  }
  Status status;
  engine.visit_masters([&](const MasterPlace& place) {
    if (status.ok()) status = read_part(files[0], place, place.value);
    for (std::size_t i = 0; i < place.moments.size(); ++i)
      if (status.ok()) status = read_part(files[i + 1], place, place.moments[i]);
  });
  if (status.ok()) status = engine.publish();
  if (status.ok()) status = engine.loss_scaler().restore(state->loss_scaler);
  if (!status.ok()) return status;
  engine.set_steps_done(state->optimizer_steps);
  return state;
}

}  // namespace tutti::training
