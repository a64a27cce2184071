// whole_file.cc: see whole_file.hpp.
#include "training/files/whole_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace tutti::training {
namespace {

// A new name is on the disk when its folder is.
Status sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return system_failure("open", folder);
  const bool synced = ::fsync(file) == 0 || errno == EINVAL;  // EINVAL: has nothing to sync
  Status status = synced ? Status() : system_failure("sync", folder);
  ::close(file);
  return status;
}

Status read_all(int file, const std::string& path, std::size_t bytes_max, std::string& text) {
  char piece[16384];
  while (true) {
    const ssize_t got = ::read(file, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_failure("read", path);
    if (got == 0) return {};
    text.append(piece, static_cast<std::size_t>(got));
    if (text.size() > bytes_max)
      return {StatusCode::corrupt_data, fmt::format("{}: more than {} bytes", path, bytes_max)};
  }
}

}  // namespace

Status system_failure(std::string_view verb, std::string_view path) {
  return {StatusCode::system_error,
          fmt::format("cannot {} {}: {}", verb, path, std::generic_category().message(errno))};
}

Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return system_failure("open", path);
  std::string text;
  Status status = read_all(file, path, bytes_max, text);
  ::close(file);
  if (!status.ok()) return status;
  return text;
}

Status write_text_file(const std::string& path, std::string_view text) {
  const std::string name = path + ".tmp";
  const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return system_failure("create", name);
  Status status = write_at(file, name, 0, bytes_of(text));
  if (status.ok() && ::fsync(file) != 0) status = system_failure("sync", name);
  ::close(file);
  if (status.ok()) status = rename_durably(name, path);
  if (!status.ok()) ::unlink(name.c_str());
  return status;
}

Status write_at(int file, std::string_view path, std::uint64_t at,
                std::span<const std::byte> bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // more than this a kernel takes in parts
  while (!bytes.empty()) {
    const ssize_t put =
        ::pwrite(file, bytes.data(), std::min(bytes.size(), kMost), static_cast<off_t>(at));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_failure("write", path);
    at += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Status rename_durably(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return system_failure("rename to", to);
  return sync_folder_of(to);
}

Status replace_folder_durably(const std::string& from, const std::string& to) {
  const int swapped = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE);
  if (swapped == 0) return sync_folder_of(to);
  if (errno == ENOENT) return rename_durably(from, to);
  if (errno != EINVAL && errno != ENOSYS) return system_failure("exchange with", to);
  // A file system that cannot exchange names: for a moment the older one has another.
  const std::string aside = to + ".old";
  if (::rename(to.c_str(), aside.c_str()) != 0) return system_failure("rename to", aside);
  if (const Status status = rename_durably(from, to); !status.ok()) return status;
  return rename_durably(aside, from);
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return system_failure("remove", path);
}

}  // namespace tutti::training
