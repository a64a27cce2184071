// ask_child.cc: see ask_child.hpp.
#include "cli/ask_child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/descriptor.hpp"

namespace tutti::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kAnswerBytesMax = 4096;  // a pipe takes as much at once

// The first byte is the code, the rest the message.
[[noreturn]] void answer(const std::function<Status()>& question, int pipe) {
  for (const int fatal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(fatal, SIG_DFL);
  const Status status = question();
  std::string text(1, static_cast<char>(status.code()));
  text += status.message();
  text.resize(std::min(text.size(), kAnswerBytesMax));
  const bool told = write(pipe, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  _exit(told ? 0 : 1);
}

// What comes until the child is gone; false: it did not go in time.
bool listen(int pipe, std::chrono::milliseconds patience, std::string& heard) {
  const auto give_up = Clock::now() + patience;
  std::array<char, kAnswerBytesMax> space{};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up - Clock::now());
    if (left.count() <= 0) return false;
    pollfd wanted{pipe, POLLIN, 0};
    if (poll(&wanted, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t got = read(pipe, space.data(), space.size());
    if (got == 0 || (got < 0 && errno != EINTR)) return true;
    if (got > 0) heard.append(space.data(), static_cast<std::size_t>(got));
  }
}

Status no_child() {
  return {StatusCode::system_error,
          fmt::format("no child process to try it in: {}", std::strerror(errno))};
}

}  // namespace

Status ask_child(const std::function<Status()>& question, std::chrono::milliseconds patience) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return no_child();
  const base::Descriptor mouth_of_pipe(ends[0]);
  base::Descriptor into_pipe(ends[1]);
  const pid_t child = fork();
  if (child < 0) return no_child();
  if (child == 0) answer(question, into_pipe.number());
  into_pipe.close();

  std::string heard;
  const bool gone = listen(mouth_of_pipe.number(), patience, heard);
  if (!gone) kill(child, SIGKILL);
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) continue;
  if (!gone)
    return {StatusCode::timeout, fmt::format("it said nothing within {} ms", patience.count())};
  if (WIFSIGNALED(ended))
    return {StatusCode::internal,
            fmt::format("it died of signal {} ({})", WTERMSIG(ended), strsignal(WTERMSIG(ended)))};
  if (heard.empty()) return {StatusCode::internal, "it ended without a word"};
  const auto code = static_cast<StatusCode>(heard.front());
  return code == StatusCode::ok ? Status() : Status(code, heard.substr(1));
}

}  // namespace tutti::cli
