// output_file.cc: see output_file.hpp.
#include "training/files/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace tutti::training {
namespace {

int flags_of(OutputFile::Mode mode) {
  switch (mode) {
    case OutputFile::Mode::replace:
      return O_TRUNC;
    case OutputFile::Mode::append:
      return O_APPEND;
    case OutputFile::Mode::fresh:
      return O_EXCL;
  }
  return O_EXCL;
}

}  // namespace

Status file_error(std::string_view what, std::string_view path) {
  const std::string why = std::generic_category().message(errno);
  return Status(StatusCode::system_error, fmt::format("cannot {} '{}': {}", what, path, why));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = std::exchange(other.number_, -1);
  }
  return *this;
}

bool Descriptor::close() {
  const int number = std::exchange(number_, -1);
  return number < 0 || ::close(number) == 0;
}

Result<OutputFile> OutputFile::open(std::string path, Mode mode) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | flags_of(mode);
  Descriptor descriptor(::open(path.c_str(), flags, 0666));
  if (!descriptor.is_open() && errno == EEXIST && mode == Mode::fresh)
    return Status(StatusCode::invalid_argument, fmt::format("'{}' is there already", path));
  if (!descriptor.is_open()) return file_error("write", path);
  return OutputFile(std::move(descriptor), std::move(path));
}

Status OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return file_error("write", path_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Status OutputFile::write_at(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return file_error("write", path_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status OutputFile::truncate(std::uint64_t bytes) {
  if (::ftruncate(descriptor_.number(), static_cast<off_t>(bytes)) != 0)
    return file_error("shorten", path_);
  return {};
}

Status OutputFile::close() {
  if (!descriptor_.close()) return file_error("finish", path_);
  return {};
}

Result<std::string> read_file(const std::string& path, std::uint64_t bytes_max) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.is_open()) return file_error("read", path);
  std::string text;
  char piece[1 << 16];
  while (true) {
    const ssize_t count = ::read(descriptor.number(), piece, sizeof(piece));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("read", path);
    if (count == 0) return text;
    text.append(piece, static_cast<std::size_t>(count));
    if (text.size() > bytes_max)
      return Status(StatusCode::corrupt_data,
                    fmt::format("'{}' is longer than the {} bytes it may have", path, bytes_max));
  }
}

Status write_file(const std::string& path, std::string_view bytes) {
  const std::string partial = fmt::format("{}.partial.{}", path, ::getpid());
  auto file = OutputFile::open(partial, OutputFile::Mode::replace);
  if (!file.ok()) return file.status();
  Status status = file->write(bytes);
  if (status.ok()) status = file->close();
  if (status.ok()) status = rename_file(partial, path);
  if (!status.ok()) ::unlink(partial.c_str());
  return status;
}

Status rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return file_error("put in place", to);
  return {};
}

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return {};
  return Status(StatusCode::system_error,
                fmt::format("cannot make the folder '{}': {}", path, error.message()));
}

}  // namespace tutti::training
