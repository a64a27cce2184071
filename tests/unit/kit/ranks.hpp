// ranks.hpp: ranks as threads of one test, and numbers that tell apart whose they are.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tutti/communicator.hpp"

namespace tutti::kit::testing {

inline std::size_t idx(int value) { return static_cast<std::size_t>(value); }

// What rank `rank` contributes as element `i`: whole numbers, which every order adds alike.
inline std::int64_t contribution(Rank rank, std::size_t i) {
  return static_cast<std::int64_t>((i * 7 + idx(rank) * 13) % 101 + 1);
}

inline std::vector<std::int64_t> contributions(Rank rank, std::size_t count) {
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = contribution(rank, i);
  return values;
}

inline std::int64_t sum_of_contributions(int ranks, std::size_t i) {
  std::int64_t sum = 0;
  for (Rank rank = 0; rank < ranks; ++rank) sum += contribution(rank, i);
  return sum;
}

// Runs `body(communicator)` on a thread for each rank.
inline void on_ranks(int ranks, const CommunicatorOptions& options,
                     const std::function<void(Communicator&)>& body) {
  auto communicators = Communicator::for_threads(ranks, options);
  ASSERT_TRUE(communicators.ok()) << communicators.status().to_string();
  std::vector<std::thread> threads;
  for (Communicator& communicator : *communicators)
    threads.emplace_back([&body, &communicator] { body(communicator); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tutti::kit::testing
