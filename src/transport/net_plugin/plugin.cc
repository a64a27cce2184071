// plugin.cc: see plugin.hpp.
#include "transport/net_plugin/plugin.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include "transport/net_plugin/device.hpp"
#include "transport/net_plugin/library.hpp"

namespace tutti::transport::net_plugin {
namespace {

constexpr std::size_t kLogLineBytes = 1024;

// The interface hands a logger no pointer of ours, so that the level is one for the process.
std::atomic<base::LogLevel>& log_level() {
  static std::atomic<base::LogLevel> level{base::LogLevel::warn};
  return level;
}

base::LogLevel level_of(int line) {
  if (line == abi::log_warn) return base::LogLevel::warn;
  if (line == abi::log_version || line == abi::log_info) return base::LogLevel::info;
  return base::LogLevel::debug;
}

__attribute__((format(printf, 5, 6))) void write_log(int line, unsigned long, const char*, int,
                                                     const char* format, ...) {
  const base::LogLevel level = level_of(line);
  const base::Log log(log_level().load(std::memory_order_relaxed), "net plugin");
  if (!log.says(level) || format == nullptr) return;
  char text[kLogLineBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (level == base::LogLevel::warn) log.warn(text);
  if (level == base::LogLevel::info) log.info(text);
  if (level == base::LogLevel::debug) log.debug(text);
}

// The libraries of this process, by what dlopen calls them.
struct Loaded {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<Interface>> interfaces;
};

Loaded& loaded() {
  static Loaded* const kept = new Loaded;  // outlives whoever ends late
  return *kept;
}

Interface* interface_of(void* library) {
  const std::lock_guard lock(loaded().mutex);
  auto& place = loaded().interfaces[library];
  if (!place) place = find_interface(library);
  return place.get();
}

Result<std::unique_ptr<Device>> open_named(const std::string& name, bool by_default,
                                           std::uint64_t communicator, int turn) {
  const Library library = by_default ? open_library(name) : find_library(name, "libnccl-net-");
  if (library.handle == nullptr) return Status(StatusCode::unsupported, library.error);
  Interface* const found = interface_of(library.handle);
  if (found == nullptr)
    return Status(StatusCode::unsupported,
                  "is a library without any of ncclNetPlugin_v11, _v10, _v9 and _v8");
  return found->open(communicator, turn);
}

}  // namespace

abi::Logger logger() { return write_log; }

void set_log_level(base::LogLevel level) { log_level().store(level, std::memory_order_relaxed); }

Result<std::unique_ptr<Device>> open_device(const PluginOptions& options,
                                            std::uint64_t communicator, int turn) {
  constexpr std::string_view kDefault = "libnccl-net.so";
  set_log_level(options.log);
  if (options.names == "none")
    return Status(StatusCode::unsupported, "NCCL_NET_PLUGIN=none: no net plugin is wanted");
  std::vector<std::string> names = names_of(options.names);
  const bool by_default = names.empty();
  if (by_default) names.emplace_back(kDefault);
  std::string reasons;
  for (const std::string& name : names) {
    auto device = open_named(name, by_default, communicator, turn);
    if (device.ok()) return device;
    reasons +=
        fmt::format("{}'{}' {}", reasons.empty() ? "" : "; ", name, device.status().message());
  }
  return Status(StatusCode::unsupported,
                fmt::format("no net plugin can be used (NCCL_NET_PLUGIN names them): {}", reasons));
}

}  // namespace tutti::transport::net_plugin
