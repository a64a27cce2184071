// What a communicator holds after every collective has been called with default settings: at most
// 1 MiB and 1 MiB for each peer, without the scratch that grows with the callers' counts.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <tuple>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;
constexpr std::size_t kBoardBytes = 16 * 1024;  // of a transport, whatever is connected

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

// One that nobody listened on a moment ago.
int free_port() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(file, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(file, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(file);
  return ntohs(address.sin_port);
}

// Runs `body` on a thread for each rank, with a communicator over the transport.
void on_ranks(const std::string& transport, int size,
              const std::function<void(Communicator&)>& body) {
  std::vector<Communicator> made;
  if (transport == "memory") {
    auto ranks = Communicator::for_threads(size);
    ASSERT_TRUE(ranks.ok()) << ranks.status().message();
    made = *std::move(ranks);
  }
  made.resize(idx(size));
  const int port = free_port();
  std::vector<std::thread> threads;
  for (Rank r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      Communicator& mine = made[idx(r)];
      if (mine.size() == 0) {
        CommunicatorOptions options;
        options.transport = transport;
        Rendezvous meeting;
        meeting.rank = r;
        meeting.size = size;
        meeting.port = port;
        auto joined = Communicator::from_rendezvous(meeting, options);
        ASSERT_TRUE(joined.ok()) << joined.status().message();
        mine = *std::move(joined);
      }
      body(mine);
    });
  for (std::thread& thread : threads) thread.join();
}

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

// Every collective with `count` elements for each rank.
void call_everything(Communicator& c, std::size_t count) {
  const std::size_t ranks = idx(c.size());
  std::vector<float> in(count * ranks, 1.0F);
  std::vector<float> out(count * ranks);
  const auto type = DataType::float32;
  const auto sum = ReduceOp::sum;
  expect_ok(c.all_reduce(in.data(), out.data(), count, type, sum));
  expect_ok(c.all_gather(in.data(), out.data(), count, type));
  expect_ok(c.reduce_scatter(in.data(), out.data(), count, type, sum));
  for (Rank root : {0, c.size() - 1}) {
    expect_ok(c.broadcast(in.data(), out.data(), count, type, root));
    expect_ok(c.reduce(in.data(), out.data(), count, type, sum, root));
    expect_ok(c.gather(in.data(), out.data(), count, type, root));
    expect_ok(c.scatter(in.data(), out.data(), count, type, root));
  }
  expect_ok(c.all_to_all(in.data(), out.data(), count, type));
  const std::vector<std::size_t> counts(ranks, count);
  expect_ok(c.all_gather_v(in.data(), out.data(), {counts}, type));
  expect_ok(c.reduce_scatter_v(in.data(), out.data(), {counts}, type, sum));
  expect_ok(c.all_to_all_v(in.data(), {counts}, out.data(), {counts}, type));
  const Rank next = (c.rank() + 1) % c.size();
  const Rank previous = (c.rank() + c.size() - 1) % c.size();
  expect_ok(c.send_recv(in.data(), next, out.data(), previous, count, type));
  expect_ok(c.barrier());
}

class Memory : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Memory, IsBoundedForEachPeer) {
#if defined(TUTTI_SANITIZED)
  GTEST_SKIP() << "counts memory, which sanitizers do not change, and takes minutes under them";
#endif
  const auto& [transport, size] = GetParam();
  on_ranks(transport, size, [size = size](Communicator& c) {
    const MemoryUse before = c.memory_use();
    EXPECT_LE(before.total_bytes(), kMebibyte) << "queues are made on first use";
    for (const std::size_t count : {1U, 1000U, 60'000U, 300'000U}) call_everything(c, count);
    const MemoryUse use = c.memory_use();
    EXPECT_GT(use.transport_bytes, 0U);
    EXPECT_GT(use.plan_bytes, 0U);
    EXPECT_GT(use.recorder_bytes, 0U);
    if (c.rank() == 0)
      for (const auto& [name, bytes] :
           {std::pair("transport", use.transport_bytes), std::pair("plans", use.plan_bytes),
            std::pair("scratch", use.scratch_bytes)})
        testing::Test::RecordProperty(name, std::to_string(bytes));
    EXPECT_LE(use.plan_bytes + use.recorder_bytes, kMebibyte);
    EXPECT_LE(use.total_bytes() - use.scratch_bytes, idx(size) * kMebibyte + kBoardBytes);
    // A single peer's queue may take half of what plans and the recorder leave.
    const std::size_t peers = idx(size - 1) * kMebibyte + (size == 2 ? kMebibyte / 2 : 0);
    EXPECT_LE(use.transport_bytes, peers + kBoardBytes)
        << "rank " << c.rank() << ": transport " << use.transport_bytes << ", plans "
        << use.plan_bytes << ", recorder " << use.recorder_bytes << "; and scratch "
        << use.scratch_bytes;
  });
}

INSTANTIATE_TEST_SUITE_P(All, Memory,
                         testing::Combine(testing::Values("memory", "shm", "tcp"),
                                          testing::Values(2, 4, 9)),
                         [](const auto& kind) {
                           return std::get<0>(kind.param) + "_" +
                                  std::to_string(std::get<1>(kind.param));
                         });

}  // namespace
}  // namespace tutti
