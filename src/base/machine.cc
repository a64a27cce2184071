// The kind of machine, from uname and /proc/cpuinfo; see machine.hpp.
#include "base/machine.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace tutti::base {
namespace {

// Lines of /proc/cpuinfo that tell kinds of processors apart, on x86 and on Arm, and what stands
// before their values.
struct Told {
  std::string_view key;
  std::string_view prefix;
};
constexpr Told kTold[] = {{"model name", ""},
                          {"cpu family", "family "},
                          {"model", "model "},
                          {"CPU implementer", "implementer "},
                          {"CPU part", "part "}};
constexpr std::size_t kMaxValue = 64;
// Of the first processor: the others are taken to be like it.
constexpr std::size_t kMaxCpuinfo = 16 * 1024;

std::string_view trim(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The value of the first "key : value" line; empty where there is none.
std::string_view value_of(std::string_view cpuinfo, std::string_view key) {
  while (!cpuinfo.empty()) {
    const std::string_view line = cpuinfo.substr(0, cpuinfo.find('\n'));
    cpuinfo.remove_prefix(std::min(cpuinfo.size(), line.size() + 1));
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key)
      return trim(line.substr(colon + 1)).substr(0, kMaxValue);
  }
  return {};
}

}  // namespace

std::string machine_kind(std::string_view architecture, std::string_view cpuinfo, long processors) {
  std::string kind(architecture.substr(0, kMaxValue));
  for (const Told& told : kTold)
    if (const std::string_view value = value_of(cpuinfo, told.key); !value.empty())
      kind += fmt::format(", {}{}", told.prefix, value);
  constexpr std::size_t kMaxKind = 170;
  kind = fmt::format("{}, {} processor{}", kind.substr(0, kMaxKind), processors,
                     processors == 1 ? "" : "s");
  std::replace_if(
      kind.begin(), kind.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return kind;
}

std::string machine_kind() {
  utsname names{};
  uname(&names);
  std::string cpuinfo(kMaxCpuinfo, '\0');
  std::ifstream file("/proc/cpuinfo");
  file.read(cpuinfo.data(), static_cast<std::streamsize>(cpuinfo.size()));
  cpuinfo.resize(static_cast<std::size_t>(file.gcount()));
  return machine_kind(names.machine, cpuinfo, sysconf(_SC_NPROCESSORS_CONF));
}

}  // namespace tutti::base
