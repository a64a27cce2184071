// world.hpp: ranks of a communicator as threads, or all of them spoken for by one thread, for tests
// of the NCCL interface.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tutti/nccl.h"

namespace tutti::nccl::test {

// What a call returned, with its text where it failed.
inline ::testing::AssertionResult worked(ncclResult_t result) {
  if (result == ncclSuccess) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result << ": " << ncclGetLastError(nullptr);
}

inline std::string last_text() { return ncclGetLastError(nullptr); }

inline ncclUniqueId fresh_id() {
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  ncclUniqueId id = {};
  EXPECT_TRUE(worked(ncclGetUniqueId(&id)));
  return id;
}

// All ranks, made by this thread in one group.
inline std::vector<ncclComm_t> make_ranks(int size) {
  const ncclUniqueId id = fresh_id();
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(size));
  EXPECT_TRUE(worked(ncclGroupStart()));
  for (int rank = 0; rank < size; ++rank)
    EXPECT_TRUE(worked(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], size, id, rank)));
  EXPECT_TRUE(worked(ncclGroupEnd()));
  return comms;
}

inline void destroy(const std::vector<ncclComm_t>& comms) {
  for (const ncclComm_t comm : comms)
    if (comm != nullptr) {
      EXPECT_TRUE(worked(ncclCommDestroy(comm)));
    }
}

// `body` of each rank on a thread of its own.
inline void on_threads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

inline int rank_of(ncclComm_t comm) {
  int rank = -1;
  EXPECT_TRUE(worked(ncclCommUserRank(comm, &rank)));
  return rank;
}

inline int size_of(ncclComm_t comm) {
  int size = -1;
  EXPECT_TRUE(worked(ncclCommCount(comm, &size)));
  return size;
}

// The sum over all ranks of `comms`, each of which gives its place in the list plus one.
inline void expect_sum(const std::vector<ncclComm_t>& comms) {
  std::vector<int> values(comms.size());
  std::iota(values.begin(), values.end(), 1);
  const int expected = std::accumulate(values.begin(), values.end(), 0);
  EXPECT_TRUE(worked(ncclGroupStart()));
  for (std::size_t i = 0; i < comms.size(); ++i)
    EXPECT_TRUE(
        worked(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i], nullptr)));
  EXPECT_TRUE(worked(ncclGroupEnd()));
  for (const int value : values) EXPECT_EQ(value, expected);
}

}  // namespace tutti::nccl::test
