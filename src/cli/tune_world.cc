// Processes, pipes and the end of them.
#include "cli/tune_world.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/cpu.hpp"
#include "base/descriptor.hpp"
#include "base/try.hpp"
#include "cli/launcher/placement.hpp"
#include "runtime/host.hpp"
#include "runtime/world.hpp"
#include "transport/bootstrap/group.hpp"

namespace tutti::cli {
namespace {

using base::Descriptor;
using Clock = std::chrono::steady_clock;

constexpr char kGood = 'G';
constexpr char kBad = 'B';
constexpr std::chrono::milliseconds kCallLimit{30'000};

struct World {
  std::string transport;
  int ranks;
  Descriptor listener;  // where rank 0's ranks meet
  int port = 0;
  std::string secret;
  std::vector<std::vector<int>> places;
};

Status system_error(const char* what) {
  return Status(StatusCode::system_error, fmt::format("{}: {}", what, std::strerror(errno)));
}

Status listen_somewhere(World& world) {
  world.listener = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  const int number = world.listener.number();
  if (number < 0 || bind(number, name, length) != 0 || listen(number, world.ranks) != 0 ||
      getsockname(number, name, &length) != 0)
    return system_error("no port to meet at");
  world.port = ntohs(address.sin_port);
  return {};
}

base::Config tune_config(const std::string& transport) {
  base::Config config;
  config.transport = *base::parse_transport_choice(transport);
  config.timeout = kCallLimit;
  config.tuning_file = "off";
  return config;
}

runtime::Members members_of(const World& world, Rank rank) {
  runtime::Members members;
  members.rank = rank;
  members.size = world.ranks;
  members.secret = world.secret;
  members.job = runtime::draw_job();
  return members;
}

// ---- Ranks that are threads ----

Result<std::string> run_threads(const World& world, const TuneBody& body) {
  const base::Config config = tune_config(world.transport);
  runtime::Members members = members_of(world, 0);
  members.threads =
      transport::MemoryWorld::make(runtime::transport_options(config, members, false));
  members.exchange = [&world](const std::string& mine) -> Result<std::vector<std::string>> {
    return std::vector<std::string>(static_cast<std::size_t>(world.ranks), mine);
  };
  std::vector<runtime::CommunicatorParts> parts;
  for (members.rank = 0; members.rank < world.ranks; ++members.rank) {
    auto made = runtime::make_parts(members, config, {});
    TUTTI_TRY(made);
    parts.push_back(*std::move(made));
  }
  std::vector<Result<std::string>> results(parts.size(), std::string());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    threads.emplace_back([&, rank] { results[rank] = body(std::move(parts[rank])); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) TUTTI_TRY(result);
  return results[0];
}

// ---- Ranks that are processes ----

Result<std::string> run_process(World& world, Rank rank, const TuneBody& body) {
  const auto& cpus = world.places[static_cast<std::size_t>(rank)];
  if (!cpus.empty()) TUTTI_TRY(base::bind_to(cpus));
  transport::BootstrapOptions meeting;
  meeting.rank = rank;
  meeting.size = world.ranks;
  meeting.port = world.port;
  meeting.secret = world.secret;
  if (rank == 0) meeting.listening_socket = ::dup(world.listener.number());
  world.listener.close();
  runtime::Members members = members_of(world, rank);
  std::shared_ptr<transport::BootstrapGroup> group;
  if (world.ranks > 1) {
    auto joined = transport::join(meeting);
    TUTTI_TRY(joined);
    group = *std::move(joined);
  }
  members.exchange = [group](const std::string& mine) -> Result<std::vector<std::string>> {
    if (!group) return std::vector<std::string>{mine};
    return group->exchange(mine);
  };
  auto parts = runtime::make_parts(members, tune_config(world.transport), {});
  TUTTI_TRY(parts);
  return body(*std::move(parts));
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;  // nobody reads any more
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
}

struct Child {
  pid_t process = -1;
  Descriptor says;  // what comes out of it
  std::string said;
};

// Never returns in the child.
Result<Child> start(World& world, Rank rank, const TuneBody& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe");
  Descriptor reads(ends[0]);
  Descriptor writes(ends[1]);
  const pid_t parent = ::getpid();
  Child child;
  child.process = ::fork();
  if (child.process < 0) return system_error("fork");
  child.says = std::move(reads);
  if (child.process > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const Result<std::string> result =
      world.transport == "memory" ? run_threads(world, body) : run_process(world, rank, body);
  write_all(writes.number(), result.ok() ? kGood + *result : kBad + result.status().message());
  ::_exit(0);
}

// Reads what there is; closes a pipe that has ended.
void hear(Child& child) {
  char part[4096];
  const ssize_t got = ::read(child.says.number(), part, sizeof part);
  if (got > 0)
    child.said.append(part, static_cast<std::size_t>(got));
  else if (got == 0 || errno != EINTR)
    child.says.close();
}

bool went_wrong(const Child& child) {
  return !child.says.open() && (child.said.empty() || child.said[0] != kGood);
}

// True when there is nothing more to wait for: all have ended, or one of them in vain.
bool hear_all(std::vector<Child>& children, Clock::time_point deadline) {
  while (std::none_of(children.begin(), children.end(), went_wrong)) {
    std::vector<pollfd> pipes;
    std::vector<Child*> speakers;
    for (Child& child : children) {
      if (!child.says.open()) continue;
      pipes.push_back({child.says.number(), POLLIN, 0});
      speakers.push_back(&child);
    }
    if (pipes.empty()) return true;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    ::poll(pipes.data(), pipes.size(), static_cast<int>(std::min<std::int64_t>(left, 1000)));
    for (std::size_t i = 0; i < pipes.size(); ++i)
      if (pipes[i].revents != 0) hear(*speakers[i]);
  }
  return true;
}

void end_all(std::vector<Child>& children) {
  for (const Child& child : children) ::kill(child.process, SIGKILL);
  for (const Child& child : children)
    while (::waitpid(child.process, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace

collectives::TuningKey tune_key(const std::string& transport, int ranks) {
  const int cores = static_cast<int>(runtime::describe_host().cpus.size());
  return {transport, ranks, std::min(ranks, std::max(1, cores)), transport != "tcp"};
}

Result<std::string> in_tune_world(const std::string& transport, int ranks,
                                  std::chrono::milliseconds limit, const TuneBody& body) {
  const bool threads = transport == "memory";
  World world{transport, ranks, {}, 0, {}, {}};
  for (int i = 0; i < 2; ++i) world.secret += fmt::format("{:016x}", runtime::draw_job());
  TUTTI_TRY(listen_somewhere(world));
  auto places = launcher::place(base::allowed_cores(), ranks, launcher::Binding::automatic);
  TUTTI_TRY(places);
  world.places = *std::move(places);
  std::vector<Child> children;
  Status failed;
  for (Rank rank = 0; rank < (threads ? 1 : ranks) && failed.ok(); ++rank) {
    Result<Child> child = start(world, rank, body);
    if (child.ok())
      children.push_back(*std::move(child));
    else
      failed = child.status();
  }
  if (failed.ok() && !hear_all(children, Clock::now() + limit))
    failed = Status(StatusCode::timeout, fmt::format("not done after {} s", limit.count() / 1000));
  end_all(children);
  TUTTI_TRY(failed);
  for (const Child& child : children)
    if (went_wrong(child))
      return Status(StatusCode::peer_lost,
                    child.said.empty() ? "a rank died" : child.said.substr(1));
  return children.front().said.substr(1);
}

}  // namespace tutti::cli
