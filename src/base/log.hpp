// log.hpp: what the library says on its own account, on stderr, and how much of it.
//
// A Log is a small value that is handed to those who have something to say; there is no global one.
// Knows nothing of configuration files or rotation: stderr belongs to the user, who redirects it.
#pragma once

#include <string>
#include <string_view>

#include "tutti/status.hpp"

namespace tutti::base {

// Each level includes those before it.
enum class LogLevel { error, warn, info, debug };

std::string_view to_string(LogLevel level);

// Writes lines such as "tutti rank 3 warn: text".
//
// Threading  any thread: a line is one write, so lines do not mix.
class Log {
 public:
  // `who` says who speaks ("rank 3"), or is empty. `descriptor` stays the caller's.
  explicit Log(LogLevel level = LogLevel::warn, std::string who = {}, int descriptor = 2);

  // Ask first where the text is dear to make.
  bool says(LogLevel level) const { return level <= level_; }

  void error(std::string_view text) const { write(LogLevel::error, text); }
  void warn(std::string_view text) const { write(LogLevel::warn, text); }
  void info(std::string_view text) const { write(LogLevel::info, text); }
  void debug(std::string_view text) const { write(LogLevel::debug, text); }

 private:
  void write(LogLevel level, std::string_view text) const;

  LogLevel level_;
  std::string who_;
  int descriptor_;
};

}  // namespace tutti::base
