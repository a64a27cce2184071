// options.cc: see options.hpp.
#include "perf/comparison/options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "perf/comparison/stage.hpp"

namespace tutti::comparison {
namespace {

constexpr const char* kUsage =
    "This program is started by perf/compare, with --stage FILE --report FILE\n"
    "--sizes BYTES,BYTES,... [--memory plain|library] [--operations NAME,...]\n"
    "[--types f32,bf16,f16] [--seconds S] [--least-calls N] [--most-calls N]\n";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return parts;
}

// Empty: one of them is no size.
std::vector<std::size_t> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  for (const std::string& part : split(text)) {
    char* end = nullptr;
    sizes.push_back(std::strtoull(part.c_str(), &end, 10));
    if (*end != '\0' || sizes.back() < sizeof(float)) return {};
  }
  return sizes;
}

// Empty: one of them is nobody's name.
template <class Value, std::size_t kCount>
std::vector<Value> parse_names(const std::string& text,
                               const std::array<std::string_view, kCount>& names) {
  std::vector<Value> values;
  for (const std::string& part : split(text)) {
    const auto found = std::find(names.begin(), names.end(), part);
    if (found == names.end()) return {};
    values.push_back(static_cast<Value>(found - names.begin()));
  }
  return values;
}

bool take(const std::string& name, const std::string& value, Options& options) {
  if (name == "--stage")
    options.stage = value;
  else if (name == "--report")
    options.report = value;
  else if (name == "--memory")
    options.memory = value == "library" ? Memory::library : Memory::plain;
  else if (name == "--operations")
    options.operations = parse_names<Operation>(value, kOperationNames);
  else if (name == "--types")
    options.types = parse_names<Type>(value, kTypeNames);
  else if (name == "--sizes")
    options.sizes = parse_sizes(value);
  else if (name == "--seconds")
    options.seconds = std::atof(value.c_str());
  else if (name == "--least-calls")
    options.least_calls = std::strtoull(value.c_str(), nullptr, 10);
  else if (name == "--most-calls")
    options.most_calls = std::strtoull(value.c_str(), nullptr, 10);
  else
    return false;
  return true;
}

}  // namespace

bool parse(int argc, char** argv, Options& options) {
  bool good = argc % 2 == 1;
  for (int i = 1; good && i + 1 < argc; i += 2) good = take(argv[i], argv[i + 1], options);
  options.most_calls = std::clamp<std::size_t>(options.most_calls, 1, Stage::kMaxCalls / 3);
  options.least_calls = std::clamp<std::size_t>(options.least_calls, 1, options.most_calls);
  good = good && !options.stage.empty() && !options.report.empty() && !options.sizes.empty() &&
         !options.operations.empty() && !options.types.empty();
  if (!good) std::fputs(kUsage, stderr);
  return good;
}

}  // namespace tutti::comparison
