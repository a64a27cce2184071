// maps.hpp: what lies where in this process, as the kernel says (/proc/self/maps).
//
// Used where nobody may allocate memory: while memory is moved, and in a child between fork() and
// its first own step. So it reads through a buffer of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/descriptor.hpp"

namespace tutti::transport::shm {

struct MappedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  bool shared = false;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t inode = 0;   // 0: no file
  std::string_view name;     // as the kernel writes it; until the next call of next()
};

// One line of the file; false when it makes no sense.
bool parse_maps_line(std::string_view line, MappedRange& range);

// Reads the ranges in the order of their addresses. A range that is replaced or removed after it
// was read does no harm to those that follow.
class MapsReader {
 public:
  MapsReader();
  // False at the end, and where the system does not tell.
  bool next(MappedRange& range);

 private:
  bool fill();

  base::Descriptor file_;
  char buffer_[8192];
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// A number of KiB that /proc/self/status has under `key` ("VmLck:"); 0 where it has none.
std::uint64_t status_kib(std::string_view key);

}  // namespace tutti::transport::shm
