// log.cc: lines on stderr; see log.hpp.
#include "base/log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace tutti::base {

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return "error";
    case LogLevel::warn:
      return "warn";
    case LogLevel::info:
      return "info";
    case LogLevel::debug:
      return "debug";
  }
  return "unknown";
}

Log::Log(LogLevel level, std::string who, int descriptor)
    : level_(level), who_(std::move(who)), descriptor_(descriptor) {}

void Log::write(LogLevel level, std::string_view text) const {
  if (!says(level)) return;
  const std::string line =
      fmt::format("tutti{}{} {}: {}\n", who_.empty() ? "" : " ", who_, to_string(level), text);
  // Where stderr is closed there is nobody to tell.
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, line.data(), line.size());
}

}  // namespace tutti::base
