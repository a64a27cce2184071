// processes.hpp: ranks as real processes of one test, over a transport of its choice. What a rank
// finds goes into memory that it shares with the test.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti::runtime::testing {

// A port that was free a moment ago.
inline int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(listener);
  return bound ? ntohs(address.sin_port) : 0;
}

// Memory of the test and the processes that it starts from then on. Zero at first.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedMemory() { munmap(memory_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  template <typename T>
  std::span<T> as() {
    return {static_cast<T*>(memory_), bytes_ / sizeof(T)};
  }

 private:
  std::size_t bytes_;
  void* memory_;
};

// How a rank ends whose port somebody else took between free_port() and its use.
inline constexpr int kPortTaken = 75;

inline bool is_port_taken(const Status& status) {
  return status.message().find("Address already in use") != std::string::npos;
}

// Runs `body` on every rank, which says whether all was well; before it joins the others,
// `prepare`, which may set its environment. Requires  a test without threads.
// `port`: where rank 0 listens; another one is asked for where somebody else does so, as other
// tests of a machine may: before any rank came to `body`.
inline bool on_processes(int ranks, const CommunicatorOptions& options,
                         const std::function<bool(Communicator&)>& body,
                         const std::function<void(Rank)>& prepare = nullptr,
                         const std::function<int()>& port = free_port) {
  Rendezvous meeting;
  meeting.size = ranks;
  meeting.port = port();
  std::vector<pid_t> children;
  for (Rank rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      if (prepare) prepare(rank);
      meeting.rank = rank;
      auto communicator = Communicator::from_rendezvous(meeting, options);
      if (rank == 0 && is_port_taken(communicator.status())) _exit(kPortTaken);
      if (!communicator.ok())
        std::fprintf(stderr, "%s\n", communicator.status().to_string().c_str());
      const bool well = communicator.ok() && body(*communicator) && communicator->close().ok();
      _exit(well ? 0 : 1);
    }
    children.push_back(child);
  }
  bool well = true;
  bool taken = false;
  for (const pid_t child : children) {
    if (taken) kill(child, SIGKILL);  // it waits for rank 0
    int status = 1;
    well &= waitpid(child, &status, 0) == child && status == 0;
    taken |= WIFEXITED(status) && WEXITSTATUS(status) == kPortTaken;
  }
  return taken ? on_processes(ranks, options, body, prepare, port) : well;
}

}  // namespace tutti::runtime::testing
