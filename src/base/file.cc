// file.cc: see file.hpp.
#include "base/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/descriptor.hpp"

namespace tutti::base {

std::optional<std::string> read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string text;
  std::array<char, 16 * 1024> part;
  while (true) {
    const ssize_t got = ::read(file.number(), part.data(), part.size());
    if (got == 0) return text;
    if (got > 0)
      text.append(part.data(), static_cast<std::size_t>(got));
    else if (errno != EINTR)
      return std::nullopt;
  }
}

}  // namespace tutti::base
