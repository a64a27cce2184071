// socket_peer.cc: the floor over TCP: two processes and the one connection between them, both ways
// at once where the operation asks for it. perf/comparison/spawn.py starts them and says where they
// are.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "perf/comparison/peer.hpp"
#include "perf/floors/loops.hpp"

namespace tutti::comparison {
namespace {

constexpr std::size_t kChunks[] = {std::size_t{64} << 10, std::size_t{256} << 10,
                                   std::size_t{1} << 20};
constexpr std::size_t kMostChunk = std::size_t{1} << 20;
constexpr std::size_t kScratch = std::size_t{128} << 10;  // stays in the cache until it is added

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

// -1: stderr says why not.
int accept_one(const sockaddr_in& address) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  int connection = -1;
  if (bind(listener, generic, sizeof(address)) == 0 && listen(listener, 1) == 0)
    connection = accept(listener, nullptr, nullptr);
  if (connection < 0) std::perror("accept");
  close(listener);
  return connection;
}

int connect_to(const sockaddr_in& address) {
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  for (int attempt = 0; attempt < 500; ++attempt) {
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection, generic, sizeof(address)) == 0) return connection;
    close(connection);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::perror("connect");
  return -1;
}

class SocketPeer : public Peer {
 public:
  SocketPeer(int connection, int rank) : connection_(connection), rank_(rank) {
    const int yes = 1;
    setsockopt(connection_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }
  ~SocketPeer() override { close(connection_); }

  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::string describe() const override { return "two processes and one TCP connection"; }
  void* allocate(std::size_t bytes) override { return std::malloc(bytes); }
  void deallocate(void* memory) override { std::free(memory); }

  std::vector<std::string> ways(const Call& call) override {
    const bool several = call.block_bytes() > kChunks[0];
    std::vector<std::string> names;
    for (const std::size_t chunk : kChunks)
      if (several || chunk == kChunks[0])
        names.push_back("by " + std::to_string(chunk >> 10) + " KiB");
    return names;
  }
  void choose(std::size_t way) override { chunk_ = kChunks[way]; }

  bool run(const Call& call) override {
    const std::size_t block = call.block_bytes();
    const std::size_t mine = static_cast<std::size_t>(rank_) * block;
    const std::size_t theirs = block - mine;
    const auto* input = static_cast<const std::byte*>(call.input());
    auto* output = static_cast<std::byte*>(call.output());
    switch (call.operation) {
      case Operation::all_reduce:
        return exchange(input, block, output, block, input, call.type);
      case Operation::reduce_scatter:
        return exchange(input + theirs, block, output, block, input + mine, call.type);
      case Operation::all_gather:
        std::memcpy(output + mine, input, block);
        return exchange(input, block, output + theirs, block, nullptr, call.type);
      case Operation::all_to_all:
        std::memcpy(output + mine, input + mine, block);
        return exchange(input + theirs, block, output + theirs, block, nullptr, call.type);
      case Operation::broadcast:
        return exchange(input, rank_ == 0 ? block : 0, output, rank_ == 0 ? 0 : block, nullptr,
                        call.type);
    }
    return false;
  }

 private:
  // Moved bytes, 0 where the system would have us wait. Ends the process when the connection ends.
  static std::size_t moved(ssize_t result) {
    if (result > 0) return static_cast<std::size_t>(result);
    if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    std::perror("the connection");
    std::_Exit(1);
  }

  // Sends and receives at once, without ever sleeping. What comes is added to `addend` where there
  // is one, as soon as a scratch is full.
  bool exchange(const std::byte* from, std::size_t sent_bytes, std::byte* to,
                std::size_t received_bytes, const std::byte* addend, Type type) {
    alignas(64) static std::byte scratch[kScratch];
    std::size_t sent = 0;
    std::size_t received = 0;
    std::size_t added = 0;
    while (sent < sent_bytes || received < received_bytes) {
      if (sent < sent_bytes)
        sent += moved(send(connection_, from + sent, std::min(chunk_, sent_bytes - sent),
                           MSG_DONTWAIT | MSG_NOSIGNAL));
      if (received == received_bytes) continue;
      const std::size_t room =
          addend == nullptr ? chunk_ : std::min(chunk_, kScratch - (received - added));
      std::byte* place = addend == nullptr ? to + received : scratch + (received - added);
      received +=
          moved(recv(connection_, place, std::min(room, received_bytes - received), MSG_DONTWAIT));
      if (addend != nullptr && (received == received_bytes || received - added == kScratch)) {
        floors::add(type, {to + added, nullptr}, addend + added, scratch, received - added,
                    floors::Stores::plain);
        added = received;
      }
    }
    return true;
  }

  int connection_;
  int rank_;
  std::size_t chunk_ = kMostChunk;
};

}  // namespace

std::unique_ptr<Peer> join(int*, char***, Memory) {
  if (environment("WORLD_SIZE") != "2") {
    std::fprintf(stderr, "a socket pair has two ends: WORLD_SIZE must be 2\n");
    return nullptr;
  }
  const int rank = std::atoi(environment("RANK").c_str());
  const sockaddr_in first =
      address_of(environment("MASTER_ADDR"), std::atoi(environment("MASTER_PORT").c_str()));
  const int connection = rank == 0 ? accept_one(first) : connect_to(first);
  if (connection < 0) return nullptr;
  return std::make_unique<SocketPeer>(connection, rank);
}

}  // namespace tutti::comparison
