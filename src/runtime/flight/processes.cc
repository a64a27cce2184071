// Goes through /proc: which descriptor of a process is its recorder, then maps that to read.
#include "runtime/flight/processes.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/descriptor.hpp"

namespace tutti::runtime::flight {
namespace {

using base::Descriptor;
using FileIdentity = std::pair<dev_t, ino_t>;

constexpr std::size_t kEntriesMax = 1 << 16;  // of one folder of /proc
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// The entries of a folder that are numbers, in order.
std::vector<long> numbers_in(const std::string& path) {
  std::vector<long> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (!folder) return numbers;
  while (const dirent* entry = readdir(folder.get())) {
    long number = 0;
    const char* end = entry->d_name + std::char_traits<char>::length(entry->d_name);
    const auto [last, error] = std::from_chars(entry->d_name, end, number);
    if (error == std::errc() && last == end) numbers.push_back(number);
    if (numbers.size() == kEntriesMax) break;
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string link_target(const std::string& path) {
  std::array<char, 256> space{};
  const ssize_t length = readlink(path.c_str(), space.data(), space.size());
  return {space.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

// The file of the recorder, and only that: memory whose size nobody can change.
std::optional<Descriptor> open_recorder(long pid) {
  static const std::string wanted = fmt::format("/memfd:{}", kFileName);
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  for (const long number : numbers_in(folder)) {
    const std::string path = fmt::format("{}/{}", folder, number);
    if (!link_target(path).starts_with(wanted)) continue;
    Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat status {};
    if (!file || fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const int seals = fcntl(file.number(), F_GET_SEALS);
    if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) continue;
    if (static_cast<std::size_t>(status.st_size) == sizeof(File)) return file;
  }
  return std::nullopt;
}

// The state and the name, from "4711 (name) S ...". A name may hold anything, also brackets.
void read_stat(Process& process) {
  const Descriptor file(
      open(fmt::format("/proc/{}/stat", process.pid).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> space{};
  const ssize_t got = file ? ::read(file.number(), space.data(), space.size()) : 0;
  const std::string_view text(space.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::size_t open_bracket = text.find('(');
  const std::size_t close_bracket = text.rfind(')');
  if (open_bracket == text.npos || close_bracket == text.npos || close_bracket < open_bracket)
    return;
  process.command = text.substr(open_bracket + 1, close_bracket - open_bracket - 1);
  for (char& c : process.command)
    if (c < ' ' || c > '~') c = '?';
  if (close_bracket + 2 < text.size()) process.state = text[close_bracket + 2];
}

Result<Process> look_into(long pid, const Descriptor& file) {
  void* memory = mmap(nullptr, sizeof(File), PROT_READ, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED)
    return Status(StatusCode::system_error,
                  fmt::format("cannot map the flight recorder of process {}", pid));
  auto view = read({static_cast<const std::byte*>(memory), sizeof(File)}, Moment::now());
  munmap(memory, sizeof(File));
  if (!view.ok()) return view.status().with_context(fmt::format("process {}", pid));
  Process process;
  process.pid = pid;
  process.recorder = *std::move(view);
  read_stat(process);
  return process;
}

}  // namespace

std::vector<Process> find_processes() {
  std::vector<Process> found;
  std::set<FileIdentity> seen;  // a child of fork() has its parent's, which is older
  for (const long pid : numbers_in("/proc")) {
    const std::optional<Descriptor> file = open_recorder(pid);
    struct stat status {};
    if (!file || fstat(file->number(), &status) != 0) continue;
    if (!seen.emplace(status.st_dev, status.st_ino).second) continue;
    auto process = look_into(pid, *file);
    if (process.ok()) found.push_back(*std::move(process));
  }
  return found;
}

Result<Process> find_process(long pid) {
  if (const auto file = open_recorder(pid)) return look_into(pid, *file);
  std::string why =
      "it is no Tutti program, has no communicator, or was started with "
      "TUTTI_FLIGHT=off; where the kernel has no memory files nobody can look in";
  if (access(fmt::format("/proc/{}", pid).c_str(), F_OK) != 0)
    why = "there is no such process";
  else if (access(fmt::format("/proc/{}/fd", pid).c_str(), R_OK | X_OK) != 0)
    why = "it belongs to another user";
  return Status(StatusCode::invalid_argument,
                fmt::format("process {} has no flight recorder to read: {}", pid, why));
}

}  // namespace tutti::runtime::flight
