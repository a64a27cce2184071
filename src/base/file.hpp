// file.hpp: a whole file at once.
//
// Not by a stream's iterators: they throw when reading fails half way, as it does for what /proc
// tells of a process that has just been taken apart.
#pragma once

#include <optional>
#include <string>

namespace tutti::base {

// Nothing when it cannot be opened or read to its end.
std::optional<std::string> read_file(const std::string& path);

}  // namespace tutti::base
