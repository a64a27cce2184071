// launch.cc: the set-up of a job and the loop that waits for everything at once; see launch.hpp.
#include "cli/launcher/launch.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/config.hpp"
#include "base/cpu.hpp"
#include "base/job_board.hpp"
#include "base/job_secret.hpp"
#include "base/try.hpp"
#include "cli/launcher/output.hpp"
#include "cli/launcher/process.hpp"
#include "cli/launcher/shared_cores.hpp"

namespace tutti::cli::launcher {
namespace {

Status system_error(std::string_view what) {
  return Status(StatusCode::system_error, fmt::format("{}: {}", what, std::strerror(errno)));
}

// A secret in a file that has no name: only processes that inherit it, and those who may trace
// them, can read it, and nobody can change it. It is gone with the last of them.
Result<Descriptor> make_secret_file() {
  const auto secret = base::make_job_secret();
  TUTTI_TRY(secret);
  Descriptor file(memfd_create("tutti-job-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.open()) return system_error("cannot make a file for the job secret");
  const auto size = static_cast<ssize_t>(secret->size());
  constexpr int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (write(file.number(), secret->data(), secret->size()) != size ||
      fchmod(file.number(), 0400) != 0 || fcntl(file.number(), F_ADD_SEALS, seals) != 0)
    return system_error("cannot write the job secret");
  return file;
}

// A port of the loopback address that nobody uses now.
Result<int> find_free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket.open() || bind(socket.number(), generic, size) != 0 ||
      getsockname(socket.number(), generic, &size) != 0)
    return system_error("cannot find a free port for MASTER_PORT");
  return ntohs(address.sin_port);
}

// Two pipes a rank: several hundred ranks pass the usual soft limit. Left alone where it suffices,
// because the ranks inherit it.
void make_room_for_descriptors(int ranks) {
  constexpr rlim_t others = 64;
  const rlim_t needed = 2 * static_cast<rlim_t>(ranks) + others;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The signals that the loop reads from a descriptor instead of being interrupted by them.
constexpr std::array kEndSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kPassedOnSignals = {SIGUSR1, SIGUSR2, SIGCONT};

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

class SignalInbox {
 public:
  Status open() {
    sigset_t set;
    sigemptyset(&set);
    // Who starts us may have told us to ignore some (nohup); blocked, they would come all the same.
    for (const int signal : kEndSignals)
      if (!is_ignored(signal)) sigaddset(&set, signal);
    for (const int signal : kPassedOnSignals) sigaddset(&set, signal);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTSTP);
    if (sigprocmask(SIG_BLOCK, &set, &before_) != 0) return system_error("sigprocmask");
    blocked_ = true;
    ::signal(SIGPIPE, SIG_IGN);
    inbox_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    return inbox_.open() ? Status() : system_error("signalfd");
  }
  ~SignalInbox() {
    if (blocked_) sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  int descriptor() const { return inbox_.number(); }

  // The next signal, or 0.
  int take() const {
    signalfd_siginfo info{};
    const ssize_t got = read(inbox_.number(), &info, sizeof(info));
    return got == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  Descriptor inbox_;
  sigset_t before_{};
  bool blocked_ = false;
};

// One stream of one rank.
struct Stream {
  Descriptor source;
  LineStream lines;

  // Reads what is there, at most `limit` bytes; closes at the end of the stream.
  void pump(std::size_t limit) {
    std::array<char, 1 << 16> buffer;
    for (std::size_t total = 0; total < limit;) {
      const ssize_t got = read(source.number(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return close();
      lines.feed({buffer.data(), static_cast<std::size_t>(got)});
      total += static_cast<std::size_t>(got);
    }
  }
  void close() {
    source.close();
    lines.finish();
  }
};

// A running job: the ranks' processes, their streams, and the loop over all of it.
class Launch {
 public:
  Launch(const LaunchOptions& options, std::string shown_command, base::JobBoard& board)
      : options_(options),
        board_(board),
        job_(options.ranks, std::move(shown_command), options.limits, Clock::now()) {}

  // However this ends, no rank stays behind.
  ~Launch() {
    for (const pid_t process : processes_)
      if (process > 0) kill(-process, SIGKILL);
    for (const pid_t process : processes_)
      if (process > 0) waitpid_quietly(process);
  }

  Status open() { return signals_.open(); }

  Status start_rank(const ProcessSpec& spec) {
    auto process = start(spec);
    TUTTI_TRY(process);
    const int rank = static_cast<int>(processes_.size());
    processes_.push_back(process->id);
    const std::string prefix = fmt::format("[{}] ", rank);
    const bool bare = options_.prefix == Prefix::none;
    const bool bare_output = bare || (options_.prefix == Prefix::automatic && rank == 0);
    streams_.push_back({std::move(process->output), LineStream(bare_output ? "" : prefix, out_)});
    streams_.push_back({std::move(process->errors), LineStream(bare ? "" : prefix, err_)});
    return {};
  }

  int run() {
    while (!job_.all_ended()) {
      wait_for_something();
      handle_signals();
      job_.time_passed(Clock::now());
      carry_out();
    }
    // What the ranks left in their pipes; processes that outlived their rank are not waited for.
    for (Stream& stream : streams_) {
      if (!stream.source.open()) continue;
      stream.pump(kPipeBytes);
      stream.close();
    }
    report();
    flush();
    return job_.exit_code();
  }

 private:
  static constexpr std::size_t kPipeBytes = 1 << 20;
  static constexpr std::chrono::milliseconds kEndingTime{1000};

  static void waitpid_quietly(pid_t process) {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(process), &info, WEXITED);
  }

  void wait_for_something() {
    std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
    std::vector<Stream*> readable = {nullptr};
    for (Stream& stream : streams_) {
      if (!stream.source.open() || !stream.lines.can_take()) continue;
      polled.push_back({stream.source.number(), POLLIN, 0});
      readable.push_back(&stream);
    }
    std::vector<Sink*> writable;
    for (Sink* sink : {&out_, &err_}) {
      if (sink->empty()) continue;
      polled.push_back({sink->descriptor(), POLLOUT, 0});
      writable.push_back(sink);
    }
    if (poll(polled.data(), polled.size(), poll_timeout_ms()) <= 0) return;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      if (i < readable.size()) {
        readable[i]->pump(1);
      } else {
        writable[i - readable.size()]->write_some();
      }
    }
    if (out_.lost()) job_.output_lost(Clock::now());
  }

  int poll_timeout_ms() const {
    const auto wake_at = job_.wake_at();
    if (!wake_at) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*wake_at - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
  }

  void handle_signals() {
    while (const int signal = signals_.take()) {
      if (signal == SIGCHLD) {
        reap();
      } else if (signal == SIGTSTP) {
        // Ctrl-Z stops the ranks as well, which are in groups of their own.
        send(SIGSTOP);
        raise(SIGSTOP);
      } else if (std::find(kPassedOnSignals.begin(), kPassedOnSignals.end(), signal) !=
                 kPassedOnSignals.end()) {
        send(signal);
      } else {
        job_.user_signal(signal, Clock::now());
      }
    }
  }

  // When several ranks ended since we last looked, their order is not known. A crash is then the
  // likelier cause than an exit: survivors of a crash exit with an error.
  void reap() {
    std::vector<std::pair<int, Ending>> endings;
    take_endings(endings);
    const auto crashed = [](const auto& each) { return each.second.signal != 0; };
    // Who exited may have seen the connections of another close that was killed, and overtaken it.
    if (!endings.empty() && !std::any_of(endings.begin(), endings.end(), crashed)) {
      await_those_who_end();
      take_endings(endings);
    }
    std::stable_partition(endings.begin(), endings.end(), crashed);
    for (const auto& [rank, ending] : endings) {
      board_.note(rank, ending);
      job_.rank_ended(rank, ending, Clock::now());
    }
  }

  void take_endings(std::vector<std::pair<int, Ending>>& endings) {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      if (processes_[rank] <= 0) continue;
      const auto ending = take_ending(processes_[rank]);
      if (!ending) continue;
      processes_[rank] = -1;
      endings.emplace_back(static_cast<int>(rank), *ending);
    }
  }

  // Until all ranks that the kernel is taking apart have ended, or take too long for it.
  void await_those_who_end() const {
    const auto give_up = Clock::now() + kEndingTime;
    for (const pid_t process : processes_) {
      if (process <= 0) continue;
      while (is_ending(process) && !has_ended(process) && Clock::now() < give_up)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  void carry_out() {
    for (const int signal : job_.take_signals()) send(signal);
    report();
  }

  void report() {
    for (const std::string& text : job_.take_reports())
      err_.append(this, fmt::format("tutti run: {}\n", text));
  }

  void send(int signal) {
    for (const pid_t process : processes_) {
      if (process <= 0) continue;
      kill(-process, signal);
      // A stopped rank cannot end.
      if (signal != SIGSTOP && signal != SIGCONT) kill(-process, SIGCONT);
    }
  }

  // Writes what is left; a signal that ends us ends this as well.
  void flush() {
    for (Sink* sink : {&out_, &err_}) {
      while (!sink->empty()) {
        std::array<pollfd, 2> polled = {
            {{signals_.descriptor(), POLLIN, 0}, {sink->descriptor(), POLLOUT, 0}}};
        if (poll(polled.data(), polled.size(), -1) < 0) continue;
        if (polled[1].revents != 0) sink->write_some();
        const int signal = polled[0].revents != 0 ? signals_.take() : 0;
        if (std::find(kEndSignals.begin(), kEndSignals.end(), signal) != kEndSignals.end()) return;
      }
    }
  }

  const LaunchOptions& options_;
  base::JobBoard& board_;
  SignalInbox signals_;
  Sink out_{STDOUT_FILENO};
  Sink err_{STDERR_FILENO};
  std::vector<pid_t> processes_;  // by rank; -1 when it has ended
  std::vector<Stream> streams_;
  Job job_;
};

std::vector<std::string> as_assignments(const base::Environment& environment) {
  std::vector<std::string> result;
  for (const auto& [name, value] : environment) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

// The command as reports name it; scripts given as an argument are cut.
std::string shown(const std::vector<std::string>& command) {
  constexpr std::size_t longest = 120;
  std::string text = fmt::format("{}", fmt::join(command, " "));
  if (text.size() > longest) text.replace(longest - 3, std::string::npos, "...");
  return text;
}

// What all ranks are told alike.
Result<base::Environment> common_environment(const LaunchOptions& options,
                                             const base::Environment& environment,
                                             int secret_descriptor) {
  int port = options.master_port;
  if (port == 0) {
    const auto free_port = find_free_port();
    TUTTI_TRY(free_port);
    port = *free_port;
  }
  base::Environment result = environment;
  if (!options.transport.empty()) result["TUTTI_TRANSPORT"] = options.transport;
  result["WORLD_SIZE"] = result["LOCAL_WORLD_SIZE"] = std::to_string(options.ranks);
  result["MASTER_ADDR"] = "127.0.0.1";
  result["MASTER_PORT"] = std::to_string(port);
  result["TUTTI_JOB_SECRET_FILE"] = fmt::format("/proc/self/fd/{}", secret_descriptor);
  result.erase("TUTTI_JOB_SECRET");
  if (options.ranks > base::usable_cpu_count()) turn_off_restartable_sequences(result);
  // One bad setting is one error here, rather than one from each rank.
  TUTTI_TRY(base::parse_config(result));
  return result;
}

}  // namespace

Result<int> launch(const LaunchOptions& options, const base::Environment& environment) {
  const auto path = find_program(options.command.front(),
                                 std::string(base::value_of(environment, "PATH")), own_folder());
  TUTTI_TRY(path);
  const auto places = place(base::allowed_cores(), options.ranks, options.binding);
  TUTTI_TRY(places);
  const auto secret = make_secret_file();
  TUTTI_TRY(secret);
  auto told = common_environment(options, environment, secret->number());
  TUTTI_TRY(told);
  make_room_for_descriptors(options.ranks);

  const auto board = base::JobBoard::make(options.ranks);
  TUTTI_TRY(board);
  (*told)["TUTTI_JOB_BOARD"] = (*board)->path();

  Launch running(options, shown(options.command), **board);
  TUTTI_TRY(running.open());
  for (int rank = 0; rank < options.ranks; ++rank) {
    (*told)["RANK"] = (*told)["LOCAL_RANK"] = std::to_string(rank);
    ProcessSpec spec;
    spec.path = *path;
    spec.arguments = options.command;
    spec.environment = as_assignments(*told);
    spec.cpus = (*places)[static_cast<std::size_t>(rank)];
    spec.reads_stdin = rank == 0;
    spec.inherited = secret->number();
    const Status started = running.start_rank(spec);
    if (!started.ok()) return started.with_context(fmt::format("rank {}", rank));
  }
  return running.run();
}

}  // namespace tutti::cli::launcher
