// socket_peer.cc: the floor over TCP: two processes and the connections between them, both ways at
// once where the operation asks for it. perf/comparison/spawn.py starts them and says where they
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
#include <iterator>
#include <string>
#include <thread>

#include "perf/comparison/peer.hpp"
#include "perf/floors/loops.hpp"

namespace tutti::comparison {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kScratch = 128 * kKiB;  // stays in the cache until it is added
constexpr int kSnug = 512 << 10;  // of the system's buffers: they stay in the cache, too
constexpr std::size_t kConnections = 2;

enum class Use {
  one,    // one connection, both ways
  apart,  // one for each way
  both,   // half of the bytes of each way in each of two
};

// How bytes go across: over which connections, with which buffers of the system's, and how many
// bytes a call of the system may move.
struct Passage {
  Use use;
  bool snug;
  std::size_t chunk;

  std::string name() const {
    constexpr const char* kUses[] = {"one", "apart", "both"};
    return std::string(kUses[static_cast<int>(use)]) + (snug ? ", snug, by " : ", by ") +
           std::to_string(chunk / kKiB) + " KiB";
  }
};

constexpr Passage kPassages[] = {{Use::one, false, 64 * kKiB},   {Use::apart, false, 64 * kKiB},
                                 {Use::apart, false, 32 * kKiB}, {Use::apart, false, 128 * kKiB},
                                 {Use::one, false, 256 * kKiB},  {Use::apart, false, 256 * kKiB},
                                 {Use::apart, true, 64 * kKiB},  {Use::both, false, 64 * kKiB}};
// How many of these, from the first on, are worth trying: little goes out in one piece, and of much
// each try takes its time.
constexpr std::size_t passages_for(std::size_t block) {
  constexpr std::size_t kLittle = 64 * kKiB;
  constexpr std::size_t kMuch = 64 * kKiB * kKiB;
  return block <= kLittle ? 2 : block < kMuch ? std::size(kPassages) : 4;
}

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

// Whatever others do on this system, nothing is paced: what arms a timer with each packet cannot be
// the least that there is. Before there is a connection, as it would never be quite undone.
int make_unpaced_socket() {
  constexpr char kControl[] = "reno";
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(made, IPPROTO_TCP, TCP_CONGESTION, kControl, sizeof(kControl) - 1);
  return made;
}

// -1: stderr says why not.
int listen_at(const sockaddr_in& address) {
  const int listener = make_unpaced_socket();
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (bind(listener, generic, sizeof(address)) == 0 && listen(listener, 1) == 0) return listener;
  std::perror("listen");
  close(listener);
  return -1;
}

int connect_to(const sockaddr_in& address) {
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  for (int attempt = 0; attempt < 500; ++attempt) {
    const int connection = make_unpaced_socket();
    if (connect(connection, generic, sizeof(address)) == 0) return connection;
    close(connection);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::perror("connect");
  return -1;
}

class Connection {
 public:
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (socket_ >= 0) close(socket_);
  }

  void open(int socket, bool snug) {
    socket_ = socket;
    const int yes = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (!snug) return;  // the system lets its buffers grow
    setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &kSnug, sizeof(kSnug));
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &kSnug, sizeof(kSnug));
  }

  // Moved bytes, 0 where the system would have us wait. Ends the process when the connection ends.
  std::size_t send(const std::byte* from, std::size_t bytes) {
    return moved(::send(socket_, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  std::size_t receive(std::byte* to, std::size_t bytes) {
    return moved(::recv(socket_, to, bytes, MSG_DONTWAIT));
  }

 private:
  static std::size_t moved(ssize_t result) {
    if (result > 0) return static_cast<std::size_t>(result);
    if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
    std::perror("the connection");
    std::_Exit(1);
  }

  int socket_ = -1;
};

// A part of a message each way: by which connections it goes, and what of it is under way.
class Lane {
 public:
  void use(Connection& out, Connection& in) {
    out_ = &out;
    in_ = &in;
  }

  // What comes is added to `addend` where there is one, as soon as the scratch is full.
  void begin(const std::byte* from, std::size_t to_send, std::byte* to, std::size_t to_receive,
             const std::byte* addend, Type type) {
    from_ = from;
    to_send_ = to_send;
    to_ = to;
    to_receive_ = to_receive;
    addend_ = addend;
    type_ = type;
    sent_ = received_ = added_ = 0;
  }

  // Bytes so far, both ways.
  std::size_t moved() const { return sent_ + received_; }

  // Moves what can be moved now, either way; false when all has been.
  bool advance(std::size_t chunk) {
    if (sent_ < to_send_) sent_ += out_->send(from_ + sent_, std::min(chunk, to_send_ - sent_));
    if (received_ < to_receive_) receive(chunk);
    return sent_ < to_send_ || received_ < to_receive_;
  }

 private:
  void receive(std::size_t chunk) {
    const std::size_t left = to_receive_ - received_;
    if (addend_ == nullptr) {
      received_ += in_->receive(to_ + received_, std::min(chunk, left));
      return;
    }
    const std::size_t waiting = received_ - added_;
    received_ += in_->receive(scratch_ + waiting, std::min({chunk, left, kScratch - waiting}));
    if (received_ < to_receive_ && received_ - added_ < kScratch) return;
    floors::add(type_, {to_ + added_, nullptr}, addend_ + added_, scratch_, received_ - added_,
                floors::Stores::plain);
    added_ = received_;
  }

  Connection* out_ = nullptr;
  Connection* in_ = nullptr;
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  const std::byte* addend_ = nullptr;
  std::size_t to_send_ = 0;
  std::size_t to_receive_ = 0;
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
  std::size_t added_ = 0;
  Type type_ = Type::f32;
  alignas(64) std::byte scratch_[kScratch];
};

// A rank's own block, which goes nowhere: it is copied while the system would have us wait.
struct Own {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t left = 0;

  void copy(std::size_t most) {
    const std::size_t bytes = std::min(most, left);
    if (bytes == 0) return;
    std::memcpy(to, from, bytes);
    to += bytes;
    from += bytes;
    left -= bytes;
  }
};

class SocketPeer : public Peer {
 public:
  explicit SocketPeer(int rank) : rank_(rank) {}

  // In the same order on both sides. False: there is no connection.
  bool connect(const sockaddr_in& first) {
    const int listener = rank_ == 0 ? listen_at(first) : -1;
    if (rank_ == 0 && listener < 0) return false;
    bool good = true;
    for (const bool snug : {false, true})
      for (Connection& connection : connections_[snug ? 1 : 0]) {
        const int socket = rank_ == 0 ? accept(listener, nullptr, nullptr) : connect_to(first);
        good = good && socket >= 0;
        connection.open(socket, snug);
      }
    if (listener >= 0) close(listener);
    if (!good) std::perror("accept");
    return good;
  }

  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::string describe() const override {
    return "two processes and the TCP connections between them";
  }
  void* allocate(std::size_t bytes) override { return comparison::allocate_plain(bytes); }
  void deallocate(void* memory) override { std::free(memory); }

  std::vector<std::string> ways(const Call& call) override {
    const std::size_t count = passages_for(call.block_bytes());
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) names.push_back(kPassages[i].name());
    return names;
  }
  void choose(std::size_t way) override {
    passage_ = kPassages[way];
    auto& connections = connections_[passage_.snug ? 1 : 0];
    const auto mine = static_cast<std::size_t>(rank_);
    for (std::size_t i = 0; i < kConnections; ++i)
      if (passage_.use == Use::apart)
        lanes_[i].use(connections[mine], connections[1 - mine]);
      else
        lanes_[i].use(connections[i], connections[i]);
  }

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
        own_ = {output + mine, input, block};
        return exchange(input, block, output + theirs, block, nullptr, call.type);
      case Operation::all_to_all:
        own_ = {output + mine, input + mine, block};
        return exchange(input + theirs, block, output + theirs, block, nullptr, call.type);
      case Operation::broadcast:
        return exchange(input, rank_ == 0 ? block : 0, output, rank_ == 0 ? 0 : block, nullptr,
                        call.type);
    }
    return false;
  }

 private:
  // Sends and receives at once, without ever sleeping; each lane has a part of both.
  bool exchange(const std::byte* from, std::size_t to_send, std::byte* to, std::size_t to_receive,
                const std::byte* addend, Type type) {
    const std::size_t count = passage_.use == Use::both ? kConnections : 1;
    const auto part = [count](std::size_t bytes, std::size_t lane) {
      return lane == count ? bytes : bytes / count * lane / 64 * 64;
    };
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t out = part(to_send, i);
      const std::size_t in = part(to_receive, i);
      lanes_[i].begin(from + out, part(to_send, i + 1) - out, to + in, part(to_receive, i + 1) - in,
                      addend == nullptr ? nullptr : addend + in, type);
    }
    for (bool more = true; more;) {
      more = false;
      const std::size_t before = moved(count);
      for (std::size_t i = 0; i < count; ++i) more = lanes_[i].advance(passage_.chunk) || more;
      if (moved(count) == before) own_.copy(kScratch);
    }
    own_.copy(own_.left);
    return true;
  }

  std::size_t moved(std::size_t lanes) const {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < lanes; ++i) bytes += lanes_[i].moved();
    return bytes;
  }

  Connection connections_[2][kConnections];  // with the system's buffers, and with snug ones
  Lane lanes_[kConnections];
  int rank_;
  Passage passage_ = kPassages[0];
  Own own_;
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
  auto peer = std::make_unique<SocketPeer>(rank);
  return peer->connect(first) ? std::move(peer) : nullptr;
}

}  // namespace tutti::comparison
