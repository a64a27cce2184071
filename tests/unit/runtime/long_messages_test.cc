// Long messages over sockets: they go from the caller's memory into the caller's memory, and a call
// is over when nothing of it is left in the process.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "processes.hpp"

namespace tutti::runtime {
namespace {

using testing::on_processes;
using testing::SharedMemory;

CommunicatorOptions over_tcp(const char* algorithm = "") {
  CommunicatorOptions options;
  options.transport = "tcp";
  options.algorithm = algorithm;
  options.timeout = std::chrono::seconds(60);
  return options;
}

std::uint32_t element(int rank, std::size_t index) {
  return static_cast<std::uint32_t>(index * 2654435761U) + static_cast<std::uint32_t>(rank) * 77U;
}

std::vector<std::uint32_t> elements(int rank, std::size_t count) {
  std::vector<std::uint32_t> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = element(rank, i);
  return made;
}

// Sizes around those from which messages are long, are cut, and fill queues; out of place and in
// place.
bool every_collective(Communicator& c) {
  const auto ranks = static_cast<std::size_t>(c.size());
  const auto me = static_cast<std::size_t>(c.rank());
  const auto type = DataType::uint32;
  for (const std::size_t count : {4095U, 4096U, 4097U, 61'441U, 200'003U}) {
    const auto mine = elements(c.rank(), count * ranks);
    std::vector<std::uint32_t> out(count * ranks);
    if (!c.all_gather(mine.data(), out.data(), count, type).ok()) return false;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] != element(static_cast<int>(i / count), i % count)) return false;
    if (!c.all_to_all(mine.data(), out.data(), count, type).ok()) return false;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] != element(static_cast<int>(i / count), me * count + i % count)) return false;
    auto sums = mine;
    if (!c.all_reduce(sums.data(), sums.data(), sums.size(), type, ReduceOp::sum).ok())
      return false;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      std::uint32_t expected = 0;
      for (int rank = 0; rank < c.size(); ++rank) expected += element(rank, i);
      if (sums[i] != expected) return false;
    }
    std::vector<std::uint32_t> part(count);
    if (!c.reduce_scatter(mine.data(), part.data(), count, type, ReduceOp::sum).ok()) return false;
    if (!std::equal(part.begin(), part.end(), sums.begin() + static_cast<long>(me * count)))
      return false;
    auto copy = mine;
    if (!c.broadcast(copy.data(), copy.data(), copy.size(), type, c.size() - 1).ok()) return false;
    for (std::size_t i = 0; i < copy.size(); ++i)
      if (copy[i] != element(c.size() - 1, i)) return false;
  }
  return true;
}

TEST(LongMessages, ArriveInEveryCollective) {
  for (const int ranks : {2, 3}) EXPECT_TRUE(on_processes(ranks, over_tcp(), every_collective));
}

TEST(LongMessages, ArriveWithChecksumsToo) {
  CommunicatorOptions options = over_tcp();
  options.checksums = true;
  EXPECT_TRUE(on_processes(2, options, every_collective));
}

TEST(LongMessages, ArriveInSlicesOfAnyLength) {
  for (const std::size_t slice : {std::size_t{20'000}, std::size_t{2} << 20}) {
    CommunicatorOptions options = over_tcp();
    options.slice_bytes = slice;
    EXPECT_TRUE(on_processes(2, options, every_collective)) << slice;
  }
}

// The root's call is over before the other one's has begun to read, and the root does not come back
// to the communicator until the data have arrived.
TEST(LongMessages, ACallThatIsOverHasSentEverything) {
  SharedMemory shared(64);
  constexpr std::size_t kCount = std::size_t{12} << 20;
  CommunicatorOptions options = over_tcp();
  options.slice_bytes = std::size_t{16} << 20;  // longer than what sockets hold at first
  const bool well = on_processes(2, options, [&](Communicator& c) {
    auto& arrived = *new (shared.as<std::atomic<int>>().data()) std::atomic<int>(0);
    if (!c.barrier().ok()) return false;
    std::vector<std::uint32_t> data(kCount, c.rank() == 0 ? 5U : 0U);
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!c.broadcast(data.data(), data.data(), kCount, DataType::uint32, 0).ok()) return false;
    if (c.rank() == 1) arrived = 1;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (arrived == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return arrived == 1 && data.front() == 5 && data.back() == 5;
  });
  EXPECT_TRUE(well);
}

// Rank 1 makes another call than rank 0 expects long data of: an error at both, and soon.
TEST(LongMessages, DifferentCallsAreAnError) {
  EXPECT_TRUE(on_processes(2, over_tcp(), [](Communicator& c) {
    std::vector<std::uint32_t> data(1U << 20, 1);
    if (!c.barrier().ok()) return false;
    const Status status =
        c.rank() == 0 ? c.broadcast(data.data(), data.data(), 1U << 20, DataType::uint32, 1)
                      : c.broadcast(data.data(), data.data(), 1U << 19, DataType::uint32, 1);
    const Status next = c.barrier();
    const bool told = status.code() == StatusCode::mismatch || next.code() == StatusCode::mismatch;
    _exit(told ? 0 : 1);  // close() would say it once more
  }));
}

// Rank 1 dies in the middle of long messages.
TEST(LongMessages, WhoDiesInTheMiddleIsNamed) {
  SharedMemory shared(64);
  EXPECT_FALSE(on_processes(2, over_tcp(), [&](Communicator& c) {
    auto& outcome = shared.as<int>()[0];
    std::vector<std::uint32_t> data(std::size_t{16} << 20, 1);
    if (!c.barrier().ok()) return false;
    if (c.rank() == 1) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        _exit(1);
      }).detach();
    }
    Status status;
    while (status.ok())
      status = c.all_reduce(data.data(), data.data(), data.size(), DataType::uint32, ReduceOp::sum);
    if (c.rank() == 0)
      outcome = status.code() == StatusCode::peer_lost && status.culprit() == 1 ? 1 : 2;
    return true;
  }));
  EXPECT_EQ(shared.as<int>()[0], 1);
}

// abort() from another thread in the middle of long messages.
TEST(LongMessages, AbortEndsThem) {
  SharedMemory shared(64);
  on_processes(2, over_tcp(), [&](Communicator& c) {
    std::vector<std::uint32_t> data(std::size_t{16} << 20, 1);
    if (!c.barrier().ok()) return false;
    std::thread aborting;
    if (c.rank() == 1)
      aborting = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        c.abort();
      });
    Status status;
    while (status.ok())
      status = c.all_reduce(data.data(), data.data(), data.size(), DataType::uint32, ReduceOp::sum);
    if (aborting.joinable()) aborting.join();
    shared.as<int>()[static_cast<std::size_t>(c.rank())] = static_cast<int>(status.code());
    return true;
  });
  EXPECT_EQ(shared.as<int>()[0], static_cast<int>(StatusCode::aborted));
  EXPECT_EQ(shared.as<int>()[1], static_cast<int>(StatusCode::aborted));
}

}  // namespace
}  // namespace tutti::runtime
