// job_secret.cc: secrets from variables, files and the kernel; see job_secret.hpp.
#include "base/job_secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/config.hpp"

namespace tutti::base {
namespace {

constexpr std::size_t kMinBytes = 16, kMaxBytes = 256, kMadeBytes = 32;

int hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const std::size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

Status unreadable(const std::string& path) {
  return Status(StatusCode::system_error,
                fmt::format("cannot read the job secret {}: {}", path, std::strerror(errno)));
}

// Reads through an open descriptor, so that the file whose mode is checked is the one that is read.
Result<std::string> read_private_file(const std::string& path, int descriptor) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) return unreadable(path);
  if ((facts.st_mode & 077U) != 0)
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} may be read or written by others (mode {:03o}); chmod 600 it",
                              path, facts.st_mode & 0777U));
  std::array<char, 2 * kMaxBytes + 16> buffer{};
  const ssize_t got = read(descriptor, buffer.data(), buffer.size());
  if (got < 0) return unreadable(path);
  auto secret = parse_job_secret({buffer.data(), static_cast<std::size_t>(got)});
  if (!secret.ok()) return secret.status().with_context(path);
  return secret;
}

}  // namespace

Result<std::string> parse_job_secret(std::string_view text) {
  const std::string_view digits = trim(text);
  const Status bad(StatusCode::invalid_argument,
                   fmt::format("a job secret is {} to {} hexadecimal digits, an even number",
                               2 * kMinBytes, 2 * kMaxBytes));
  if (digits.size() % 2 != 0 || digits.size() < 2 * kMinBytes || digits.size() > 2 * kMaxBytes)
    return bad;
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const int high = hex_digit(digits[i]), low = hex_digit(digits[i + 1]);
    if (high < 0 || low < 0) return bad;
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

Result<std::string> make_job_secret() {
  std::array<unsigned char, kMadeBytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return Status(StatusCode::system_error,
                  fmt::format("the kernel gives no random bytes: {}", std::strerror(errno)));
  return fmt::format("{:02x}\n", fmt::join(bytes, ""));
}

Result<std::string> find_job_secret(const Config& config, const std::string& home) {
  if (!config.job_secret.empty()) return config.job_secret;
  const bool named = !config.job_secret_file.empty();
  if (!named && home.empty()) return std::string();
  const std::string path = named ? config.job_secret_file : home + "/.tutti/secret";
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    if (!named && (errno == ENOENT || errno == ENOTDIR)) return std::string();
    return unreadable(path);
  }
  auto secret = read_private_file(path, descriptor);
  close(descriptor);
  return secret;
}

}  // namespace tutti::base
