// Copy engines instead of kernels, through the C interface alone: asked for by a communicator's
// config, by ranks that are threads, or are spoken for by one. On the stand-in for CUDA.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "kit/cuda_stand_in/stand_in.hpp"
#include "nccl_tests/cuda_runtime.hpp"
#include "tutti/nccl.h"

namespace {

constexpr int kSize = 3;
constexpr std::size_t kCount = 700;
constexpr int kLaunchFailed = 719;

struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int* input = nullptr;
  int* output = nullptr;
};

int value_of(int rank, std::size_t i) { return rank * 100'000 + static_cast<int>(i); }

class NcclCopies : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = kSize * kCount * sizeof(int);

  void SetUp() override {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    for (int rank = 0; rank < kSize; ++rank) ranks_[static_cast<std::size_t>(rank)].rank = rank;
    make([](int) { return NCCL_CTA_POLICY_ZERO; });
    for (Rank& r : ranks_) {
      ASSERT_EQ(cudaSetDevice(r.rank), 0);
      ASSERT_EQ(cudaStreamCreateWithFlags(&r.stream, 1), 0);
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&r.input), kBytes), 0);
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&r.output), kBytes), 0);
      write(r);
    }
    std::uint64_t bytes = 0;
    ASSERT_EQ(ncclCommMemStats(ranks_[0].comm, ncclStatGpuMemTotal, &bytes), ncclSuccess);
    if (bytes == 0) GTEST_SKIP() << "this build has no kernels, or they are turned off";
  }
  void TearDown() override {
    tutti_stand_in_fail("cuLaunchKernel", 0, 0);
    for (Rank& r : ranks_) {
      EXPECT_EQ(ncclCommDestroy(r.comm), ncclSuccess);
      EXPECT_EQ(cudaSetDevice(r.rank), 0);
      EXPECT_EQ(cudaFree(r.input), 0);
      EXPECT_EQ(cudaFree(r.output), 0);
      EXPECT_EQ(cudaStreamDestroy(r.stream), 0);
    }
  }

  // Communicators with these policies, made by threads.
  template <typename Policy>
  void make(Policy policy) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    each([&](Rank& r) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.CTAPolicy = policy(r.rank);
      EXPECT_EQ(cudaSetDevice(r.rank), 0);
      EXPECT_EQ(ncclCommInitRankConfig(&r.comm, kSize, id, r.rank, &config), ncclSuccess)
          << ncclGetLastError(nullptr);
    });
  }

  static void write(const Rank& r) {
    std::vector<int> values(kSize * kCount);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(r.rank, i);
    EXPECT_EQ(cudaMemcpy(r.input, values.data(), kBytes, 1), 0);
    const std::vector<int> none(values.size(), -1);
    EXPECT_EQ(cudaMemcpy(r.output, none.data(), kBytes, 1), 0);
  }

  // Each rank on a thread of its own.
  template <typename Body>
  void each(Body body) {
    std::vector<std::thread> threads;
    for (Rank& r : ranks_) threads.emplace_back([&] { body(r); });
    for (std::thread& thread : threads) thread.join();
  }
  template <typename Call>
  void call_in_threads(Call call) {
    each([&](Rank& r) {
      EXPECT_EQ(cudaSetDevice(r.rank), 0);
      EXPECT_EQ(call(r), ncclSuccess) << ncclGetLastError(r.comm);
      EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    });
  }
  template <typename Call>
  void call_in_group(Call call) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (Rank& r : ranks_) EXPECT_EQ(call(r), ncclSuccess) << ncclGetLastError(r.comm);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  void synchronize() {
    for (const Rank& r : ranks_) {
      EXPECT_EQ(cudaSetDevice(r.rank), 0);
      EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    }
  }
  template <typename Expected>
  void expect_output(std::size_t count, Expected expected) {
    for (const Rank& r : ranks_) {
      std::vector<int> values(count);
      EXPECT_EQ(cudaMemcpy(values.data(), r.output, count * sizeof(int), 2), 0);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(values[i], expected(r.rank, i)) << "rank " << r.rank << ", element " << i;
      write(r);
    }
  }
  static int gathered(int, std::size_t i) {
    return value_of(static_cast<int>(i / kCount), i % kCount);
  }
  static ncclResult_t gather(const Rank& r) {
    return ncclAllGather(r.input, r.output, kCount, ncclInt, r.comm, r.stream);
  }

  std::vector<Rank> ranks_ = std::vector<Rank>(kSize);
};

// With kernels that cannot be launched, whoever succeeds has done without.
TEST_F(NcclCopies, MakeWhatOnlyMovesData) {
  tutti_stand_in_fail("cuLaunchKernel", kLaunchFailed, 0);
  call_in_threads(gather);
  expect_output(kSize * kCount, gathered);
  call_in_threads([](const Rank& r) {
    return ncclAlltoAll(r.input, r.output, kCount, ncclInt, r.comm, r.stream);
  });
  expect_output(kSize * kCount, [](int rank, std::size_t i) {
    return value_of(static_cast<int>(i / kCount),
                    static_cast<std::size_t>(rank) * kCount + i % kCount);
  });
  call_in_threads([](const Rank& r) {
    return ncclBroadcast(r.input, r.output, kCount, ncclInt, 1, r.comm, r.stream);
  });
  expect_output(kCount, [](int, std::size_t i) { return value_of(1, i); });
  call_in_threads([](const Rank& r) {
    return ncclGather(r.input, r.output, kCount, ncclInt, 2, r.comm, r.stream);
  });
  expect_output(kSize * kCount,
                [](int rank, std::size_t i) { return rank == 2 ? gathered(rank, i) : -1; });
  call_in_threads([](const Rank& r) {
    return ncclScatter(r.input, r.output, kCount, ncclInt, 0, r.comm, r.stream);
  });
  expect_output(kCount, [](int rank, std::size_t i) {
    return value_of(0, static_cast<std::size_t>(rank) * kCount + i);
  });
  EXPECT_NE(ncclAllReduce(ranks_[0].input, ranks_[0].output, 1, ncclInt, ncclSum, ranks_[0].comm,
                          ranks_[0].stream),
            ncclSuccess);
}

// One thread speaks for all ranks, and kernels' calls come between copies.
TEST_F(NcclCopies, AreGrouped) {
  for (int time = 0; time < 3; ++time)
    call_in_group([](const Rank& r) {
      const ncclResult_t gathered = gather(r);
      if (gathered != ncclSuccess) return gathered;
      const ncclResult_t summed =
          ncclAllReduce(r.output, r.input, kSize * kCount, ncclInt, ncclSum, r.comm, r.stream);
      if (summed != ncclSuccess) return summed;
      return ncclAlltoAll(r.input, r.output, kCount, ncclInt, r.comm, r.stream);
    });
  synchronize();
  // What is gathered is the same everywhere, so a sum of it is three times that; then each rank
  // has its own block of it from everybody, and next time gathers the first blocks of those.
  std::vector<std::vector<int>> inputs(kSize, std::vector<int>(kSize * kCount));
  for (std::size_t rank = 0; rank < kSize; ++rank)
    for (std::size_t i = 0; i < inputs[rank].size(); ++i)
      inputs[rank][i] = value_of(static_cast<int>(rank), i);
  for (int time = 0; time < 3; ++time) {
    std::vector<int> summed;
    for (const std::vector<int>& input : inputs)
      for (std::size_t i = 0; i < kCount; ++i) summed.push_back(kSize * input[i]);
    inputs.assign(kSize, summed);
  }
  expect_output(kSize * kCount, [&](int rank, std::size_t i) {
    return inputs[0][static_cast<std::size_t>(rank) * kCount + i % kCount];
  });
}

// Two communicators in one group of two threads, which come to them in different orders.
TEST_F(NcclCopies, OfSeveralCommunicatorsMayBeGrouped) {
  const std::vector<Rank> first = ranks_;
  make([](int) { return NCCL_CTA_POLICY_ZERO; });
  each([&](const Rank& r) {
    EXPECT_EQ(cudaSetDevice(r.rank), 0);
    Rank other = r;
    other.comm = first[static_cast<std::size_t>(r.rank)].comm;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int time = 0; time < 2; ++time) {
      const bool turn = (r.rank + time) % 2 == 0;
      EXPECT_EQ(ncclBroadcast(r.input, r.output, kCount, ncclInt, 1, turn ? r.comm : other.comm,
                              r.stream),
                ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
  });
  expect_output(kCount, [](int, std::size_t i) { return value_of(1, i); });
  for (const Rank& r : first) EXPECT_EQ(ncclCommDestroy(r.comm), ncclSuccess);
}

TEST_F(NcclCopies, AreAskedForByAllRanks) {
  for (const Rank& r : ranks_) EXPECT_EQ(ncclCommDestroy(r.comm), ncclSuccess);
  make([](int rank) { return rank == 1 ? NCCL_CTA_POLICY_DEFAULT : NCCL_CTA_POLICY_ZERO; });
  tutti_stand_in_fail("cuLaunchKernel", kLaunchFailed, 0);
  EXPECT_NE(gather(ranks_[0]), ncclSuccess);  // at once: nobody is waited for
  tutti_stand_in_fail("cuLaunchKernel", 0, 0);
  call_in_threads(gather);
  expect_output(kSize * kCount, gathered);
}

// Streams that one capture joins: the graph has the copies of all ranks.
TEST_F(NcclCopies, AreCapturedIntoOneGraph) {
  tutti_stand_in_fail("cuLaunchKernel", kLaunchFailed, 0);
  const Rank& origin = ranks_[0];
  std::vector<CUevent_st*> events(kSize);
  for (const Rank& r : ranks_) {
    EXPECT_EQ(cudaSetDevice(r.rank), 0);
    EXPECT_EQ(cudaEventCreate(&events[static_cast<std::size_t>(r.rank)]), 0);
  }
  EXPECT_EQ(cudaSetDevice(0), 0);
  ASSERT_EQ(cudaStreamBeginCapture(origin.stream, 0), 0);
  EXPECT_EQ(cudaEventRecord(events[0], origin.stream), 0);
  for (int rank = 1; rank < kSize; ++rank)
    EXPECT_EQ(cudaStreamWaitEvent(ranks_[static_cast<std::size_t>(rank)].stream, events[0], 0), 0);
  call_in_group(gather);
  for (std::size_t rank = 1; rank < kSize; ++rank) {
    EXPECT_EQ(cudaSetDevice(static_cast<int>(rank)), 0);
    EXPECT_EQ(cudaEventRecord(events[rank], ranks_[rank].stream), 0);
    EXPECT_EQ(cudaStreamWaitEvent(origin.stream, events[rank], 0), 0);
  }
  EXPECT_EQ(cudaSetDevice(0), 0);
  CUgraph_st* graph = nullptr;
  CUgraph_st* instance = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(origin.stream, &graph), 0);
  ASSERT_EQ(cudaGraphInstantiate(&instance, graph, 0), 0);
  expect_output(kSize * kCount, [](int, std::size_t) { return -1; });
  for (int replay = 0; replay < 2; ++replay) {
    EXPECT_EQ(cudaGraphLaunch(instance, origin.stream), 0);
    EXPECT_EQ(cudaStreamSynchronize(origin.stream), 0);
    expect_output(kSize * kCount, gathered);
  }
  EXPECT_EQ(cudaGraphExecDestroy(instance), 0);
  EXPECT_EQ(cudaGraphDestroy(graph), 0);
  for (CUevent_st* const event : events) EXPECT_EQ(cudaEventDestroy(event), 0);
}

// No copy can be in the graphs of two ranks: kernels make the call.
TEST_F(NcclCopies, LeaveCapturesOfTheirOwnToKernels) {
  std::vector<CUgraph_st*> instances(kSize);
  for (const Rank& r : ranks_) ASSERT_EQ(cudaStreamBeginCapture(r.stream, 0), 0);
  call_in_group(gather);
  for (const Rank& r : ranks_) {
    CUgraph_st* graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
    ASSERT_EQ(cudaGraphInstantiate(&instances[static_cast<std::size_t>(r.rank)], graph, 0), 0);
    EXPECT_EQ(cudaGraphDestroy(graph), 0);
  }
  for (const Rank& r : ranks_)
    EXPECT_EQ(cudaGraphLaunch(instances[static_cast<std::size_t>(r.rank)], r.stream), 0);
  synchronize();
  expect_output(kSize * kCount, gathered);
  for (CUgraph_st* const instance : instances) EXPECT_EQ(cudaGraphExecDestroy(instance), 0);
}

// A rank waits in the host for those that have not called, until somebody aborts.
TEST_F(NcclCopies, AnAbortEndsTheWait) {
  const std::vector<Rank> kept = ranks_;
  make([](int) { return NCCL_CTA_POLICY_ZERO; });
  std::thread waiter([&] {
    EXPECT_EQ(cudaSetDevice(0), 0);
    EXPECT_NE(gather(ranks_[0]), ncclSuccess);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ncclCommAbort(ranks_[1].comm), ncclSuccess);
  waiter.join();
  ncclResult_t error = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(ranks_[0].comm, &error), ncclSuccess);
  EXPECT_NE(error, ncclSuccess);
  for (const int rank : {0, 2})
    EXPECT_EQ(ncclCommAbort(ranks_[static_cast<std::size_t>(rank)].comm), ncclSuccess);
  ranks_ = kept;
}

}  // namespace
