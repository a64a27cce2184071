// file.hpp: a whole file at once.
//
// Not by a stream's iterators: they throw when reading fails half way, as it does for what /proc
// tells of a process that has just been taken apart.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "tutti/status.hpp"

namespace tutti::base {

// Errors  system_error: it cannot be opened or read to its end, or is larger than `bytes_max`; the
//         text is the kernel's reason.
Result<std::string> read_file(const std::string& path,
                              std::size_t bytes_max = std::numeric_limits<std::size_t>::max());

}  // namespace tutti::base
