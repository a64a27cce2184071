// The shm transport between real processes: what only they can show, above all how they end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>

#include "transport/shm/transport.hpp"
#include "unit/transport/conformance.hpp"

namespace tutti::transport {
namespace {

constexpr std::size_t kBlobMax = 1000;

// An exchange between a parent (rank 0) and one forked child (rank 1).
class Pair {
 public:
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets_.data()), 0); }
  ~Pair() {
    for (const int socket : sockets_) close(socket);
  }

  ExchangeFunction of(Rank rank) {
    const int socket = sockets_[static_cast<std::size_t>(rank)];
    return [socket, rank](const std::string& mine) -> Result<std::vector<std::string>> {
      std::array<char, kBlobMax> buffer;
      if (write(socket, mine.data(), mine.size()) < 0) return Status(StatusCode::peer_lost, "pair");
      const ssize_t length = read(socket, buffer.data(), buffer.size());
      if (length <= 0) return Status(StatusCode::peer_lost, "pair");
      const std::string theirs(buffer.data(), static_cast<std::size_t>(length));
      return rank == 0 ? std::vector{mine, theirs} : std::vector{theirs, mine};
    };
  }

 private:
  std::array<int, 2> sockets_ = {-1, -1};
};

TransportOptions options_of(Rank rank) {
  TransportOptions options;
  options.rank = rank;
  options.size = 2;
  options.job_secret = "job";
  return options;
}

// Forks a process that is rank 1 and runs `body` with its transport; it exits with what that
// returns, or 99 when there is no transport.
template <typename Body>
pid_t fork_rank_one(Pair& pair, Body body) {
  const pid_t child = fork();
  if (child != 0) return child;
  Result<std::unique_ptr<Transport>> made = make_shm_transport(options_of(1), pair.of(1));
  if (!made.ok()) _exit(99);
  const int code = body(*made.value());
  made.value().reset();
  _exit(code);
}

template <typename Done>
bool drive(Transport& transport, Done done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    (void)transport.poll();
  }
  return true;
}

bool send(Transport& transport, std::uint32_t tag, std::string_view text) {
  Endpoint& peer = *transport.endpoint(1 - transport.rank(), 0).value();
  std::span<std::byte> room;
  const bool sent = drive(transport, [&] {
    room = peer.reserve(text.size());
    return room.data() != nullptr || !peer.status().ok();
  });
  if (!sent || room.data() == nullptr) return false;
  std::memcpy(room.data(), text.data(), text.size());
  peer.commit(tag, text.size());
  return true;
}

std::string receive(Transport& transport) {
  Endpoint& peer = *transport.endpoint(1 - transport.rank(), 0).value();
  Frame frame;
  if (!drive(transport, [&] { return peer.peek(frame) || !peer.status().ok(); })) return "silence";
  if (!peer.status().ok()) return peer.status().to_string();
  std::string text(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
  peer.release();
  return text;
}

std::set<std::string> names_in_dev_shm() {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored))
    names.insert(entry.path().filename());
  return names;
}

int exit_code(pid_t child) {
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

class ShmProcessTest : public testing::Test {
 protected:
  void join() {
    Result<std::unique_ptr<Transport>> made = make_shm_transport(options_of(0), pair_.of(0));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    transport_ = std::move(made).value();
  }

  Pair pair_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(ShmProcessTest, ProcessesTalk) {
  const std::string large(50'000, 'x');
  const pid_t child = fork_rank_one(pair_, [&](Transport& transport) {
    if (receive(transport) != "question") return 1;
    return send(transport, 2, large) ? 0 : 2;
  });
  ASSERT_NO_FATAL_FAILURE(join());
  ASSERT_TRUE(send(*transport_, 1, "question"));
  EXPECT_EQ(receive(*transport_), large);
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(ShmProcessTest, AKilledPeerIsNamedAndLeavesNothing) {
  const std::set<std::string> before = names_in_dev_shm();
  const pid_t child = fork_rank_one(pair_, [&](Transport& transport) {
    void* memory = transport.allocate_shareable(100'000);
    if (memory == nullptr) return 1;
    send(transport, 1, "alive");
    while (true) (void)transport.poll();
    return 0;
  });
  ASSERT_NO_FATAL_FAILURE(join());
  EXPECT_EQ(receive(*transport_), "alive");
  ASSERT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(exit_code(child), 1000 + SIGKILL);
  Status status;
  ASSERT_TRUE(drive(*transport_, [&] {
    status = transport_->poll().status();
    transport_->sleep(1000);
    return !status.ok();
  }));
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_NE(status.message().find("rank 1 (pid " + std::to_string(child) + ")"), std::string::npos)
      << status.to_string();
  EXPECT_EQ(transport_->endpoint(1, 0).status(), status);
  EXPECT_EQ(names_in_dev_shm(), before);
}

// The child keeps the dead peer's sockets open, so that only the process itself tells.
TEST_F(ShmProcessTest, AKilledPeerIsNoticedThoughAChildOfItLives) {
  const pid_t child = fork_rank_one(pair_, [](Transport& transport) {
    const pid_t grandchild = fork();
    if (grandchild == 0)
      while (true) pause();
    send(transport, 1, std::to_string(grandchild));
    while (true) pause();
    return 0;
  });
  ASSERT_NO_FATAL_FAILURE(join());
  const pid_t grandchild = std::stoi(receive(*transport_));
  kill(child, SIGKILL);
  EXPECT_EQ(exit_code(child), 1000 + SIGKILL);
  EXPECT_TRUE(drive(*transport_,
                    [&] { return transport_->poll().status().code() == StatusCode::peer_lost; }));
  kill(grandchild, SIGKILL);
}

TEST_F(ShmProcessTest, APeerThatDiedBeforeItsFirstUseIsLost) {
  const pid_t child = fork_rank_one(pair_, [](Transport&) {
    kill(getpid(), SIGKILL);
    return 0;
  });
  ASSERT_NO_FATAL_FAILURE(join());
  EXPECT_EQ(exit_code(child), 1000 + SIGKILL);
  const Result<Endpoint*> peer = transport_->endpoint(1, 0);
  EXPECT_EQ(peer.status().code(), StatusCode::peer_lost);
  EXPECT_NE(peer.status().message().find("rank 1"), std::string::npos);
  EXPECT_EQ(transport_->poll().status(), peer.status());
}

TEST_F(ShmProcessTest, WhatAFinishedProcessSentCanBeReadAtFirstUse) {
  const pid_t child = fork_rank_one(pair_, [](Transport& transport) {
    return send(transport, 1, "early") && send(transport, 2, std::string(1000, 'y')) ? 0 : 1;
  });
  ASSERT_NO_FATAL_FAILURE(join());
  EXPECT_EQ(exit_code(child), 0);
  EXPECT_EQ(receive(*transport_), "early");
  EXPECT_EQ(receive(*transport_), std::string(1000, 'y'));
  EXPECT_TRUE(transport_->poll().ok()) << "leaving in good order is no failure";
  // But counting on one that left is.
  EXPECT_FALSE(send(*transport_, 1, "too late"));
  const Status status = transport_->poll().status();
  EXPECT_EQ(status.code(), StatusCode::peer_lost);
  EXPECT_NE(status.message().find("rank 1 has left"), std::string::npos) << status.to_string();
}

TEST_F(ShmProcessTest, AForkedCopyDoesNotSayGoodbye) {
  const pid_t child = fork_rank_one(pair_, [](Transport& transport) {
    if (receive(transport) != "go") return 1;
    return send(transport, 1, receive(transport)) ? 0 : 2;
  });
  ASSERT_NO_FATAL_FAILURE(join());
  ASSERT_TRUE(send(*transport_, 1, "go"));
  const pid_t copy = fork();
  if (copy == 0) {
    transport_.reset();
    _exit(0);
  }
  EXPECT_EQ(exit_code(copy), 0);
  ASSERT_TRUE(send(*transport_, 1, "still here"));
  EXPECT_EQ(receive(*transport_), "still here");
  EXPECT_EQ(exit_code(child), 0);
}

TEST_F(ShmProcessTest, AnotherSecretIsRefused) {
  const pid_t child = fork();
  if (child == 0) {
    TransportOptions wrong = options_of(1);
    wrong.job_secret = "guess";
    const Status status = make_shm_transport(wrong, pair_.of(1)).status();
    _exit(status.code() == StatusCode::peer_lost ? 0 : 1);
  }
  // Rank 0 waits for its real peer until the deadline, which is too long for a test: only what the
  // child sees is checked here.
  const pid_t zero = fork();
  if (zero == 0) _exit(make_shm_transport(options_of(0), pair_.of(0)).ok() ? 1 : 0);
  EXPECT_EQ(exit_code(child), 0);
  kill(zero, SIGKILL);
  exit_code(zero);
}

TEST(ShmSetUpTest, AnotherHostIsAnErrorThatNamesTheRanks) {
  TransportOptions options;
  options.size = 3;
  const Status status =
      make_shm_transport(options, [](const std::string& mine) -> Result<std::vector<std::string>> {
        return std::vector{mine, mine, "shm3 elsewhere " + std::string(32, '0') + " 7 4 0"};
      }).status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_NE(status.message().find("rank 0 and rank 2"), std::string::npos) << status.to_string();
}

TEST(ShmSetUpTest, NonsenseFromTheExchangeIsAnError) {
  TransportOptions options;
  options.size = 2;
  const auto with = [&](std::vector<std::string> blobs) {
    return make_shm_transport(
               options,
               [&](const std::string&) -> Result<std::vector<std::string>> { return blobs; })
        .status()
        .code();
  };
  EXPECT_EQ(with({"one"}), StatusCode::corrupt_data);
  EXPECT_EQ(with({"one", "two"}), StatusCode::corrupt_data);
}

// Within one process, so that both ends can be looked at.
TEST(ShmRegionTest, AFreedRegionIsUnmappedAtThePeer) {
  TransportOptions options;
  options.size = 2;
  conformance::World world = conformance::make_by_exchange(options, make_shm_transport);
  Transport& owner = *world.transports[0];
  Transport& user = *world.transports[1];
  Endpoint& out = *owner.endpoint(1, 0).value();
  Endpoint& in = *user.endpoint(0, 0).value();
  constexpr std::size_t kBytes = std::size_t{3} << 20;
  void* memory = owner.allocate_shareable(kBytes);
  const MemoryReference reference = out.export_memory(memory, kBytes);
  ASSERT_TRUE(drive(user, [&] { return in.import_memory(reference, kBytes) != nullptr; }));
  owner.release_shareable(memory);
  EXPECT_TRUE(drive(user, [&] {
    (void)owner.poll();
    return in.import_memory(reference, kBytes) == nullptr;
  }));
  // A new one, perhaps at the same address, is another region.
  void* next = owner.allocate_shareable(kBytes);
  const MemoryReference next_reference = out.export_memory(next, kBytes);
  EXPECT_NE(next_reference.region, reference.region);
  EXPECT_TRUE(drive(user, [&] { return in.import_memory(next_reference, kBytes) != nullptr; }));
  owner.release_shareable(next);
}

}  // namespace
}  // namespace tutti::transport
