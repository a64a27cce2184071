// environment.cc: see environment.hpp.
#include "nccl/environment.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "base/text.hpp"

namespace tutti::nccl {
namespace {

// Read elsewhere: by those who load plugins.
constexpr std::string_view kReadElsewhere[] = {"NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN"};

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

std::optional<bool> read_flag(std::string_view value) {
  if (value == "0") return false;
  if (value == "1") return true;
  return std::nullopt;
}

void read_debug(const std::string& value, Settings& settings) {
  const std::string level = lower(value);
  settings.version = true;
  if (level == "warn") settings.log = base::LogLevel::warn;
  if (level == "info") settings.log = base::LogLevel::info;
  if (level == "trace" || level == "abort") settings.log = base::LogLevel::debug;
  if (settings.log || level == "version") return;
  settings.version = false;
  settings.remarks.push_back(
      fmt::format("NCCL_DEBUG={}: expected VERSION, WARN, INFO or TRACE", value));
}

// "ring", "ring,tree", "^tree": of NCCL's algorithms two are ours as well. One that is left is
// forced where it can do the collective; where both are, or none is, the planner chooses.
void read_algorithm(const std::string& value, Settings& settings) {
  std::string text = lower(value);
  const bool unwanted = text.starts_with('^');
  if (unwanted) text.erase(0, 1);
  if (text.find(':') != std::string::npos) {
    settings.remarks.push_back(fmt::format(
        "NCCL_ALGO={}: choices for single collectives are not taken; name one for all", value));
    return;
  }
  std::set<std::string> named;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    named.insert(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  std::vector<std::string> left;
  for (const char* ours : {"ring", "tree"})
    if (named.contains(ours) != unwanted) left.push_back(ours);
  if (left.size() == 1) settings.algorithm = left.front();
  if (left.empty())
    settings.remarks.push_back(
        fmt::format("NCCL_ALGO={}: has neither Ring nor Tree; the planner chooses", value));
}

void read_rank(const std::string& name, const std::string& value, Settings& settings) {
  const auto rank = base::parse_integer(value, 0, std::numeric_limits<int>::max());
  if (rank.ok())
    settings.topology_dump_rank = static_cast<int>(*rank);
  else
    settings.remarks.push_back(fmt::format("{}={}: expected a rank", name, value));
}

// How far card and GPU may be apart: not at all, or so far as Tutti does not ask.
void read_gdr_level(const std::string& value, Settings& settings) {
  const std::string level = lower(value);
  if (level == "0" || level == "loc") {
    settings.gpu_direct = base::GpuDirectChoice::off;
    return;
  }
  constexpr std::string_view kLevels[] = {"1", "2", "3", "4", "5", "pix", "pxb", "phb", "sys"};
  if (std::find(std::begin(kLevels), std::end(kLevels), level) == std::end(kLevels))
    settings.remarks.push_back(
        fmt::format("NCCL_NET_GDR_LEVEL={}: expected LOC, PIX, PXB, PHB or SYS", value));
}

// True when the variable means something here.
bool read_variable(const std::string& name, const std::string& value, Settings& settings) {
  const auto flag = [&](auto&& apply) {
    if (const auto on = read_flag(value))
      apply(*on);
    else
      settings.remarks.push_back(fmt::format("{}={}: expected 0 or 1", name, value));
    return true;
  };
  if (name == "NCCL_DEBUG") return read_debug(value, settings), true;
  if (name == "NCCL_ALGO") return read_algorithm(value, settings), true;
  if (name == "NCCL_SOCKET_IFNAME") return settings.interfaces = value, true;
  if (name == "NCCL_TOPO_FILE") return settings.topology_file = value, true;
  if (name == "NCCL_TOPO_DUMP_FILE") return settings.topology_dump_file = value, true;
  if (name == "NCCL_TOPO_DUMP_FILE_RANK") return read_rank(name, value, settings), true;
  if (name == "NCCL_NET_GDR_LEVEL") return read_gdr_level(value, settings), true;
  if (name == "NCCL_NET_GDR_READ")
    return flag([&](bool on) {
      if (!on && settings.gpu_direct == base::GpuDirectChoice::automatic)
        settings.gpu_direct = base::GpuDirectChoice::receive;
    });
  if (name == "NCCL_COMM_BLOCKING") return flag([&](bool on) { settings.blocking = on; });
  if (name == "NCCL_P2P_DISABLE")
    return flag([&](bool on) { settings.lowering = on ? "staged" : ""; });
  if (name == "NCCL_SHM_DISABLE")
    return flag([&](bool on) { settings.transport = on ? "tcp" : ""; });
  return std::find(std::begin(kReadElsewhere), std::end(kReadElsewhere), name) !=
         std::end(kReadElsewhere);
}

}  // namespace

Settings read_settings(const base::Environment& environment) {
  Settings settings;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("NCCL_") || name.starts_with("NCCL_TESTS_") || value.empty()) continue;
    if (!read_variable(name, value, settings)) settings.ignored.push_back(name);
  }
  return settings;
}

void Settings::apply(CommunicatorOptions& options) const {
  if (options.algorithm.empty()) options.algorithm = algorithm;
  if (options.transport.empty()) options.transport = transport;
  if (options.lowering.empty()) options.lowering = lowering;
}

}  // namespace tutti::nccl
