// run_config.cc: see run_config.hpp. What keys there are is in run_config_keys.cc; here are
// files, overrides, and the rules that hold between keys.
#include "training/trainer/run_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "training/trainer/run_config_keys.hpp"
#include "training/trainer/toml_text.hpp"

namespace tutti::training {
namespace {

// Lines of one error text.
class Problems {
 public:
  void add(std::string line) {
    if (lines_.size() < kMost) lines_.push_back(std::move(line));
    ++count_;
  }

  // Whether more of them are only counted.
  bool full() const { return count_ >= kMost; }

  Status status() const {
    if (count_ == 0) return {};
    std::string text = lines_.front();
    for (std::size_t i = 1; i < lines_.size(); ++i) text += "\n" + lines_[i];
    if (count_ > kMost) text += fmt::format("\nand {} more", count_ - kMost);
    return Status(StatusCode::invalid_argument, std::move(text));
  }

 private:
  static constexpr std::size_t kMost = 20;
  std::vector<std::string> lines_;
  std::size_t count_ = 0;
};

// ---- Values ----

// No path and no name has a NUL, and the system would end it there.
bool is_text(const toml::node& node) {
  const auto* text = node.as_string();
  return text != nullptr && text->get().find('\0') == std::string::npos;
}

// Each sets the member when the node is of its type, and says whether it was. Ranges are checked
// for all keys together, later.
struct Assign {
  const toml::node& node;

  bool operator()(const FlagValue& value) const {
    const auto* flag = node.as_boolean();
    if (flag != nullptr) *value.member = flag->get();
    return flag != nullptr;
  }
  bool operator()(const IntegerValue& value) const {
    const auto* integer = node.as_integer();
    if (integer != nullptr) *value.member = integer->get();
    return integer != nullptr;
  }
  bool operator()(const RealValue& value) const {
    const std::optional<double> number = node.value<double>();
    const bool numeric = node.is_number() && number.has_value();
    if (numeric) *value.member = *number;
    return numeric;
  }
  bool operator()(const TextValue& value) const {
    if (is_text(node)) *value.member = node.as_string()->get();
    return is_text(node);
  }
  bool operator()(const TextsValue& value) const {
    std::vector<std::string> texts;
    if (is_text(node)) {
      if (!node.as_string()->get().empty()) texts.push_back(node.as_string()->get());
    } else if (const auto* list = node.as_array()) {
      for (const toml::node& element : *list) {
        if (!is_text(element)) return false;
        texts.push_back(element.as_string()->get());
      }
    } else {
      return false;
    }
    *value.member = std::move(texts);
    return true;
  }
  bool operator()(const WordValue& value) const {
    return is_text(node) && value.set(node.as_string()->get());
  }
};

// ---- Rules between keys ----

// Where each key that was given stands: "train.steps" -> "run.toml:3:9".
using Places = std::map<std::string, std::string, std::less<>>;

void check_ranges(RunConfig config, const Places& places, Problems& problems) {
  for (const ConfigSection& section : config_sections(config))
    for (const ConfigKey& key : section.keys) {
      if (in_range(key.value)) continue;
      const std::string name = fmt::format("{}.{}", section.name, key.name);
      const auto place = places.find(name);
      problems.add(fmt::format("{}{} = {}: expected {}",
                               place == places.end() ? "" : place->second + ": ", name,
                               clipped(printed(key.value)), description(key.value)));
    }
}

void check_model_and_data(const RunConfig& c, Problems& problems) {
  if (!c.model.hf.empty() && !c.model.preset.empty())
    problems.add("model.hf and model.preset exclude each other; give one");
  if (c.model.hf.empty() && c.model.preset.empty())
    problems.add("neither model.hf nor model.preset is given; one says what to train");
  for (const std::string& file : c.data.train)
    if (file.empty()) problems.add("data.train has an empty name; give files or patterns");
  if (c.train.eval_every > 0 && c.data.held_out == 0)
    problems.add(fmt::format(
        "train.eval_every = {} needs data to evaluate on; data.held_out above 0 or eval_every = 0",
        c.train.eval_every));
  if (c.train.micro_batch > 0 && c.train.global_batch % c.train.micro_batch != 0)
    problems.add(fmt::format("train.global_batch = {} is no multiple of train.micro_batch = {}",
                             c.train.global_batch, c.train.micro_batch));
}

void check_parallel(const RunConfig& c, Problems& problems) {
  const ParallelConfig& p = c.parallel;
  if (p.dp_replicate == 0 || p.dp_shard == 0)
    problems.add("parallel.dp_replicate and parallel.dp_shard are at least 1, or one of them -1");
  if (p.dp_replicate == ParallelConfig::kRest && p.dp_shard == ParallelConfig::kRest)
    problems.add("parallel.dp_replicate and parallel.dp_shard are both -1; one must be a number");
  const bool interleaved = p.schedule == "interleaved";
  if (interleaved && p.virtual_stages < 2)
    problems.add("parallel.schedule = \"interleaved\" needs parallel.virtual of at least 2");
  if (!interleaved && !p.schedule.starts_with("file:") && p.virtual_stages > 1)
    problems.add(fmt::format(
        "parallel.virtual = {} needs parallel.schedule = \"interleaved\" or a file, not {}",
        p.virtual_stages, clipped_quote(p.schedule)));
  const std::int64_t rows = c.train.micro_batch * c.data.seq_len;
  if (p.sequence_parallel && p.tp > 0 && rows % p.tp != 0)
    problems.add(fmt::format(
        "parallel.sequence_parallel: train.micro_batch * data.seq_len = {} * {} = {} is no "
        "multiple of parallel.tp = {}",
        c.train.micro_batch, c.data.seq_len, rows, p.tp));
}

void check_checkpoint(const CheckpointConfig& c, Problems& problems) {
  if (c.every > 0 && c.dir.empty())
    problems.add(fmt::format("checkpoint.every = {} needs checkpoint.dir, a folder", c.every));
  if (c.resume.empty())
    problems.add("checkpoint.resume is empty: \"auto\", \"never\" or a checkpoint's path");
}

// Rules compute with values, so they are only asked about values that are in range.
Status check_all(const RunConfig& config, const Places& places, Problems problems) {
  check_ranges(config, places, problems);
  if (const Status status = problems.status(); !status.ok()) return status;
  check_model_and_data(config, problems);
  check_parallel(config, problems);
  check_checkpoint(config.checkpoint, problems);
  return problems.status();
}

// ---- Reading ----

// Takes a file and overrides, one after the other, and collects what is wrong with them.
class Reader {
 public:
  Reader() : sections_(config_sections(config_)) {}
  Reader(const Reader&) = delete;  // sections_ points into config_
  Reader& operator=(const Reader&) = delete;

  void read_file(const toml::table& file, std::string_view name);
  void read_overrides(std::span<const std::string> overrides);

  Result<RunConfig> finish() {
    const Status status = check_all(config_, places_, std::move(problems_));
    if (!status.ok()) return status;
    return std::move(config_);
  }

 private:
  const ConfigSection* section_of(std::string_view name, const std::string& place);
  const ConfigKey* key_of(const ConfigSection& section, std::string_view name,
                          const std::string& place);
  void read_section(const ConfigSection& section, const toml::table& keys, std::string_view name);
  void read_override(std::string_view text);
  void assign(const ConfigSection& section, const ConfigKey& key, const toml::node& node,
              const std::string& place);
  void settle_model();

  RunConfig config_;
  std::vector<ConfigSection> sections_;
  Places places_;
  Problems problems_;
  std::set<std::string, std::less<>> given_;  // by the file or the overrides, whichever is read
};

std::string guess(const std::optional<std::string>& name) {
  return name ? fmt::format("; did you mean {}?", *name) : "";
}

const ConfigSection* Reader::section_of(std::string_view name, const std::string& place) {
  for (const ConfigSection& section : sections_)
    if (section.name == name) return &section;
  const std::string meant = problems_.full() ? "" : guess(nearest_section(name));
  problems_.add(fmt::format("{}: there is no section {}{}", place, clipped_quote(name), meant));
  return nullptr;
}

const ConfigKey* Reader::key_of(const ConfigSection& section, std::string_view name,
                                const std::string& place) {
  for (const ConfigKey& key : section.keys)
    if (key.name == name) return &key;
  const std::string meant = problems_.full() ? "" : guess(nearest_key(section.name, name));
  problems_.add(
      fmt::format("{}: [{}] has no key {}{}", place, section.name, clipped_quote(name), meant));
  return nullptr;
}

void Reader::assign(const ConfigSection& section, const ConfigKey& key, const toml::node& node,
                    const std::string& place) {
  const std::string name = fmt::format("{}.{}", section.name, key.name);
  places_[name] = place;
  given_.insert(name);
  if (!std::visit(Assign{node}, key.value))
    problems_.add(fmt::format("{}: {}: expected {}, found {}", place, name, description(key.value),
                              found(node)));
}

std::string place_of(std::string_view file, const toml::source_position& at) {
  return fmt::format("{}:{}:{}", file, at.line, at.column);
}

struct Entry {
  const toml::key* key;
  const toml::node* node;
};

// The entries in the order in which they stand in the file: the table has them sorted by name.
std::vector<Entry> in_order(const toml::table& table) {
  std::vector<Entry> entries;
  for (auto at = table.cbegin(); at != table.cend(); ++at)
    entries.push_back({&at->first, &at->second});
  const auto place = [](const Entry& entry) {
    const toml::source_position at = entry.key->source().begin;
    return std::pair(at.line, at.column);
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const Entry& a, const Entry& b) { return place(a) < place(b); });
  return entries;
}

void Reader::read_file(const toml::table& file, std::string_view name) {
  given_.clear();
  for (const Entry& part : in_order(file)) {
    const std::string place = place_of(name, part.key->source().begin);
    const ConfigSection* const section = section_of(part.key->str(), place);
    if (section == nullptr) continue;
    if (const toml::table* const keys = part.node->as_table())
      read_section(*section, *keys, name);
    else
      problems_.add(
          fmt::format("{}: [{}] is a section, not {}", place, section->name, found(*part.node)));
  }
  settle_model();
}

void Reader::read_section(const ConfigSection& section, const toml::table& keys,
                          std::string_view name) {
  for (const Entry& entry : in_order(keys)) {
    const ConfigKey* const key =
        key_of(section, entry.key->str(), place_of(name, entry.key->source().begin));
    if (key != nullptr)
      assign(section, *key, *entry.node, place_of(name, entry.node->source().begin));
  }
}

// Texts need no quotes on a command line; what begins like TOML is read as TOML.
std::string override_as_toml(const ConfigKey& key, std::string_view value) {
  const bool one_text =
      std::holds_alternative<TextValue>(key.value) || std::holds_alternative<WordValue>(key.value);
  const bool list = std::holds_alternative<TextsValue>(key.value);
  const bool quotes = value.starts_with('"') || value.starts_with('\'');
  const bool plain = (one_text || (list && !value.starts_with('['))) && !quotes;
  return "value = " + (plain ? quoted(value) : std::string(value));
}

void Reader::read_override(std::string_view text) {
  const std::string place = "--set " + clipped(text);
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::size_t dot = name.find('.');
  if (equals == std::string_view::npos || dot == std::string_view::npos)
    return problems_.add(fmt::format("{}: write section.key=value", place));
  const ConfigSection* const section = section_of(name.substr(0, dot), place);
  if (section == nullptr) return;
  const ConfigKey* const key = key_of(*section, name.substr(dot + 1), place);
  if (key == nullptr) return;
  const std::string_view value = text.substr(equals + 1);
  const auto parsed = parse_toml(override_as_toml(*key, value), place, kRunConfigBytesMax);
  // More than one entry: the value went on after a line's end.
  if (!parsed.ok() || parsed->size() != 1)
    return problems_.add(fmt::format("{}: {}.{}: expected {}, found {}", place, section->name,
                                     key->name, description(key->value), clipped_quote(value)));
  assign(*section, *key, parsed->begin()->second, place);
}

void Reader::read_overrides(std::span<const std::string> overrides) {
  given_.clear();
  for (const std::string& text : overrides) read_override(text);
  settle_model();
}

// Who names a model need not unset the other way of naming one: neither the default's, nor, in an
// override, the file's.
void Reader::settle_model() {
  const bool hf = given_.contains("model.hf") && !config_.model.hf.empty();
  const bool preset = given_.contains("model.preset") && !config_.model.preset.empty();
  if (hf && !given_.contains("model.preset")) config_.model.preset.clear();
  if (preset && !given_.contains("model.hf")) config_.model.hf.clear();
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

Result<RunConfig> parse_run_config(std::string_view text, std::string_view name,
                                   std::span<const std::string> overrides) {
  const auto parsed = parse_toml(text, name, kRunConfigBytesMax);
  if (!parsed.ok()) return parsed.status();
  Reader reader;
  reader.read_file(*parsed, name);
  reader.read_overrides(overrides);
  return reader.finish();
}

Result<RunConfig> read_run_config(const std::string& path, std::span<const std::string> overrides) {
  const auto failed = [&] {
    return Status(StatusCode::system_error,
                  fmt::format("cannot read {}: {}", clipped(path), std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return failed();
  std::string text(kRunConfigBytesMax + 1, '\0');  // one more, to see that it is too large
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return failed();
  return parse_run_config(text, path, overrides);
}

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;
  std::string text;
  for (const ConfigSection& section : config_sections(copy)) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const ConfigKey& key : section.keys)
      text += fmt::format("{} = {}\n", key.name, printed(key.value));
  }
  return text;
}

Status check(const RunConfig& config) { return check_all(config, {}, {}); }

Result<std::int64_t> accumulation_steps(const TrainConfig& train, std::int64_t data_parallel) {
  const auto refused = [&](std::string_view why) {
    return Status(StatusCode::invalid_argument,
                  fmt::format("train.global_batch = train.micro_batch * data-parallel ranks * "
                              "accumulated micro-batches: {} = {} * {} * {}",
                              train.global_batch, train.micro_batch, data_parallel, why));
  };
  if (train.micro_batch < 1 || data_parallel < 1 || train.global_batch < 1)
    return refused("?, and none may be below 1");
  if (train.micro_batch > train.global_batch / data_parallel)
    return refused("a fraction; take a larger global_batch, or less of the others");
  const std::int64_t at_once = train.micro_batch * data_parallel;
  const std::int64_t steps = train.global_batch / at_once;
  if (steps * at_once != train.global_batch)
    return refused(fmt::format("{} and {} rows are left; take a global_batch of {} or {}", steps,
                               train.global_batch - steps * at_once, steps * at_once,
                               (steps + 1) * at_once));
  return steps;
}

std::string run_config_reference() {
  RunConfig defaults;
  std::string text;
  for (const ConfigSection& section : config_sections(defaults)) {
    text += fmt::format("## [{}]\n\n{}\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
                        section.name, section.help);
    for (const ConfigKey& key : section.keys)
      text += fmt::format("| `{}` | {} | `{}` | {} |\n", key.name, description(key.value),
                          printed(key.value), key.help);
    text += "\n";
  }
  return text;
}

}  // namespace tutti::training
