// run_config_keys.hpp: the one table of what a run.toml may say: for each key its name, the member
// that it fills, what values it takes, and what it means.
//
// Knows nothing of TOML's grammar or of files; run_config.cc does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "training/trainer/run_config.hpp"

namespace tutti::training {

// The kinds of values; each points at the member that it stands for.
struct FlagValue {
  bool* member;
};
struct IntegerValue {
  std::int64_t* member;
  std::int64_t low, high;
};
struct RealValue {
  double* member;
  double low, high;
  enum class Ends : unsigned char { closed, open, low_closed } ends;
};
struct TextValue {
  std::string* member;
};
struct TextsValue {
  std::vector<std::string>* member;
};
// Text with a grammar of its own: the names of an enumeration, for example.
struct WordValue {
  std::string accepted;  // for people: "`auto`, `always` or `never`"
  std::function<std::string()> get;
  std::function<bool(std::string_view)> set;  // false: not accepted, and nothing is changed
};

using ConfigValue =
    std::variant<FlagValue, IntegerValue, RealValue, TextValue, TextsValue, WordValue>;

struct ConfigKey {
  std::string_view name;
  ConfigValue value;
  std::string_view help;
};

struct ConfigSection {
  std::string_view name;
  std::string_view help;
  std::vector<ConfigKey> keys;
};

// The table, with the members of `config`, which must outlive it.
std::vector<ConfigSection> config_sections(RunConfig& config);

// "an integer from 1 to 64": what a value may be.
std::string description(const ConfigValue& value);

// The value as TOML: `true`, `3`, `0.1`, `"text"`, `["a", "b"]`.
std::string printed(const ConfigValue& value);

// Whether the value is within the limits of its kind.
bool in_range(const ConfigValue& value);

// The name of a section ("train") or key ("train.steps") that was most likely meant; none when all
// are too far off.
std::optional<std::string> nearest_section(std::string_view name);
std::optional<std::string> nearest_key(std::string_view section, std::string_view name);

}  // namespace tutti::training
