// Lines such as "7f0000000000-7f0000200000 rw-p 00000000 00:00 0     [heap]".
#include "transport/shm/maps.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tutti::transport::shm {
namespace {

// Takes a number off the front of `text`, and the character after it.
bool take_number(std::string_view& text, int base, char after, std::uint64_t& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc() || stop == end || *stop != after) return false;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()) + 1);
  return true;
}

std::string_view without_spaces_before(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

}  // namespace

bool parse_maps_line(std::string_view line, MappedRange& range) {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (!take_number(line, 16, '-', begin) || !take_number(line, 16, ' ', end)) return false;
  if (line.size() < 5 || begin >= end) return false;
  range.begin = begin;
  range.end = end;
  range.readable = line[0] == 'r';
  range.writable = line[1] == 'w';
  range.executable = line[2] == 'x';
  range.shared = line[3] == 's';
  line.remove_prefix(5);
  std::uint64_t device = 0;
  if (!take_number(line, 16, ' ', range.offset) || !take_number(line, 16, ':', device) ||
      !take_number(line, 16, ' ', device))
    return false;
  const char* const stop = line.data() + line.size();
  const auto inode = std::from_chars(line.data(), stop, range.inode);
  if (inode.ec != std::errc()) return false;
  line.remove_prefix(static_cast<std::size_t>(inode.ptr - line.data()));
  range.name = without_spaces_before(line);
  return true;
}

MapsReader::MapsReader() : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}

bool MapsReader::fill() {
  std::memmove(buffer_, buffer_ + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == sizeof buffer_) return false;  // no line is that long
  const ssize_t got = read(file_.number(), buffer_ + end_, sizeof buffer_ - end_);
  if (got <= 0) return false;
  end_ += static_cast<std::size_t>(got);
  return true;
}

bool MapsReader::next(MappedRange& range) {
  for (;;) {
    const std::string_view text(buffer_ + begin_, end_ - begin_);
    const std::size_t line = text.find('\n');
    if (line != std::string_view::npos) {
      begin_ += line + 1;
      return parse_maps_line(text.substr(0, line), range);
    }
    if (!fill()) return false;
  }
}

std::uint64_t status_kib(std::string_view key) {
  const base::Descriptor file(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  char buffer[4096];
  const ssize_t got = read(file.number(), buffer, sizeof buffer);
  const std::string_view text(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  const std::size_t found = text.find(key);
  if (found == std::string_view::npos) return 0;
  std::string_view value = text.substr(found + key.size());
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  std::uint64_t kib = 0;
  std::from_chars(value.data(), value.data() + value.size(), kib);
  return kib;
}

}  // namespace tutti::transport::shm
