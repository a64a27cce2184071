// file.cc: see file.hpp.
#include "base/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/descriptor.hpp"

namespace tutti::base {
namespace {

Status reason(int error) { return Status(StatusCode::system_error, std::strerror(error)); }

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) return reason(errno);
  std::string text;
  std::array<char, 16 * 1024> part;
  while (true) {
    const ssize_t got = ::read(file.number(), part.data(), part.size());
    if (got == 0) return text;
    if (got > 0)
      text.append(part.data(), static_cast<std::size_t>(got));
    else if (errno != EINTR)
      return reason(errno);
    if (text.size() > bytes_max) return reason(EFBIG);
  }
}

}  // namespace tutti::base
