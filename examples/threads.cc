// threads: ranks as threads of one process, which needs no launcher and no network; handy for tests
// and for programs that already have a thread per part of the machine.
//
//   threads
#include <cstdint>
#include <cstdio>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

// What each rank does. Block p of what it sends goes to rank p; then both halves of the world, made
// by split(), count themselves.
tutti::Status work(tutti::Communicator& world, bool& right) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::int32_t> sent(ranks), received(ranks);
  for (std::size_t to = 0; to < ranks; ++to)
    sent[to] = world.rank() * 100 + static_cast<std::int32_t>(to);
  tutti::Status status = world.all_to_all(sent.data(), received.data(), 1, tutti::DataType::int32);
  if (!status.ok()) return status;
  for (std::size_t from = 0; from < ranks; ++from)
    right = right && received[from] == static_cast<std::int32_t>(from) * 100 + world.rank();

  auto half = world.split(world.rank() % 2);
  if (!half.ok()) return half.status();
  std::vector<std::int64_t> members = {1};
  status = half->all_reduce(std::span(members), tutti::ReduceOp::sum);
  right = right && members[0] == half->size();
  return status;
}

}  // namespace

int main() {
  constexpr int kRanks = 4;
  auto worlds = tutti::Communicator::for_threads(kRanks);
  if (!worlds.ok()) {
    std::fprintf(stderr, "%s\n", worlds.status().to_string().c_str());
    return 1;
  }
  int good[kRanks] = {};
  std::vector<std::thread> threads;
  for (tutti::Communicator& world : *worlds) {
    threads.emplace_back([&good, &world] {
      bool right = true;
      const tutti::Status status = work(world, right);
      if (!status.ok())
        std::fprintf(stderr, "rank %d: %s\n", world.rank(), status.to_string().c_str());
      good[world.rank()] = status.ok() && right ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();

  int total = 0;
  for (const int one : good) total += one;
  std::printf("%d of %d ranks received what they should\n", total, kRanks);
  return total == kRanks ? 0 : 1;
}
