// process.cc: fork, exec and wait; see process.hpp.
#include "cli/launcher/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/cpu.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace tutti::cli::launcher {
namespace {

Status system_error(std::string_view what, int error) {
  return Status(StatusCode::system_error, fmt::format("{}: {}", what, std::strerror(error)));
}

struct Pipe {
  Descriptor read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

// What went wrong between fork and exec, sent through a pipe that a successful exec closes.
struct StartFailure {
  int error = 0;
  char call[32] = {};
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// The new process's life up to exec. The launcher has one thread, so that ordinary calls are safe
// here.
class NewProcess {
 public:
  NewProcess(const ProcessSpec& spec, pid_t launcher, const Pipe& output, const Pipe& errors,
             int failures)
      : spec_(spec), launcher_(launcher), output_(output), errors_(errors), failures_(failures) {}

  [[noreturn]] void become(char* const* arguments, char* const* environment) {
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl");
    if (getppid() != launcher_) _exit(1);  // died before we could ask to die with it
    restore_signals();
    connect_streams();
    if (spec_.inherited >= 0 && fcntl(spec_.inherited, F_SETFD, 0) != 0) fail("fcntl");
    if (!spec_.cpus.empty() && !base::bind_to(spec_.cpus).ok()) fail("sched_setaffinity");
    execve(spec_.path.c_str(), arguments, environment);
    fail("execve");
  }

 private:
  void restore_signals() {
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    if (sigprocmask(SIG_SETMASK, &none, nullptr) != 0) fail("sigprocmask");
  }

  void connect_streams() {
    // Several ranks cannot share what is typed; and a process outside the terminal's foreground
    // group would be stopped by reading from it.
    if (!spec_.reads_stdin || isatty(STDIN_FILENO)) {
      const int nothing = open("/dev/null", O_RDONLY);
      if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) fail("open /dev/null");
      if (nothing != STDIN_FILENO) close(nothing);
    }
    if (dup2(output_.write.number(), STDOUT_FILENO) < 0) fail("dup2");
    if (dup2(errors_.write.number(), STDERR_FILENO) < 0) fail("dup2");
  }

  [[noreturn]] void fail(const char* call) {
    StartFailure failure;
    failure.error = errno;
    std::strncpy(failure.call, call, sizeof(failure.call) - 1);
    [[maybe_unused]] const ssize_t sent = write(failures_, &failure, sizeof(failure));
    _exit(127);
  }

  const ProcessSpec& spec_;
  pid_t launcher_;
  const Pipe& output_;
  const Pipe& errors_;
  int failures_;
};

// Blocks until the new process has become the program, or could not.
Status await_start(int failures, pid_t process, const ProcessSpec& spec) {
  StartFailure failure;
  ssize_t got = 0;
  do got = read(failures, &failure, sizeof(failure));
  while (got < 0 && errno == EINTR);
  if (got != sizeof(failure)) return {};
  waitpid(process, nullptr, 0);
  return system_error(fmt::format("cannot start {} ({})", spec.path, failure.call), failure.error);
}

// Whether the kernel has begun to take a thread apart. Of a thread that is gone, too.
bool is_thread_ending(const std::filesystem::path& thread) {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING, part of what proc(5) calls flags
  const Result<std::string> text = base::read_file((thread / "stat").string());
  if (!text.ok()) return true;
  // The program's name stands in brackets and may hold anything.
  const std::size_t name_end = text->rfind(')');
  if (name_end == std::string::npos) return true;
  std::istringstream fields(text->substr(name_end + 1));
  std::string skipped;
  for (int field = 0; field < 6; ++field) fields >> skipped;
  unsigned flags = 0;
  fields >> flags;
  return (flags & kExiting) != 0;
}

bool is_program(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

}  // namespace

Result<Process> start(const ProcessSpec& spec) {
  auto output = make_pipe();
  TUTTI_TRY(output);
  auto errors = make_pipe();
  TUTTI_TRY(errors);
  auto failures = make_pipe();
  TUTTI_TRY(failures);
  const auto arguments = pointers(spec.arguments);
  const auto environment = pointers(spec.environment);
  NewProcess child(spec, getpid(), *output, *errors, failures->write.number());
  const pid_t id = fork();
  if (id < 0) return system_error("cannot start another process", errno);
  if (id == 0) child.become(arguments.data(), environment.data());

  // Both sides set the group, so that it is there whoever runs first.
  setpgid(id, id);
  failures->write.close();
  TUTTI_TRY(await_start(failures->read.number(), id, spec));
  Process process;
  process.id = id;
  process.output = std::move(output->read);
  process.errors = std::move(errors->read);
  for (const int descriptor : {process.output.number(), process.errors.number()})
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
  return process;
}

bool has_ended(pid_t process) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

std::optional<Ending> take_ending(pid_t process) {
  // Looks before it reaps: as long as the process is not reaped, its number, and that of its group,
  // cannot be another's.
  if (!has_ended(process)) return std::nullopt;
  kill(-process, SIGKILL);
  int status = 0;
  waitpid(process, &status, 0);
  if (WIFSIGNALED(status)) return Ending{0, WTERMSIG(status)};
  return Ending{WEXITSTATUS(status), 0};
}

bool is_ending(pid_t process) {
  // A first thread that has left the others alone does not end its process.
  std::error_code gone;
  std::filesystem::directory_iterator threads(fmt::format("/proc/{}/task", process), gone);
  for (; !gone && threads != std::filesystem::directory_iterator(); threads.increment(gone))
    if (!is_thread_ending(threads->path())) return false;
  return true;
}

Result<std::string> find_program(const std::string& program, const std::string& path,
                                 const std::string& own_folder) {
  if (program.find('/') != std::string::npos) {
    if (is_program(program)) return program;
    return Status(StatusCode::invalid_argument,
                  fmt::format("{} is not a program that can be run", program));
  }
  for (const std::string_view folder : base::split(path, ':')) {
    const std::string candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, program);
    if (is_program(candidate)) return candidate;
  }
  const std::string beside = fmt::format("{}/{}", own_folder, program);
  if (is_program(beside)) return beside;
  const bool here = is_program("./" + program);
  return Status(StatusCode::invalid_argument,
                fmt::format("there is no program {} in PATH or in {}{}", program, own_folder,
                            here ? fmt::format("; did you mean ./{}?", program) : ""));
}

std::string own_folder() {
  std::array<char, 4096> buffer{};
  const ssize_t size = readlink("/proc/self/exe", buffer.data(), buffer.size());
  const std::string path(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace tutti::cli::launcher
