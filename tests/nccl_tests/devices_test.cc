// What libnccl.so.2 makes of device memory and streams, through the C interface alone, as a program
// for CUDA uses it: four devices, one thread, calls in groups. On the stand-in for CUDA.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "kit/cuda_stand_in/stand_in.hpp"
#include "nccl_tests/cuda_runtime.hpp"
#include "tutti/nccl.h"

namespace {

constexpr int kSize = 4;
constexpr std::size_t kCount = 1003;

struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* input = nullptr;
  float* output = nullptr;
};

// Holds up a stream until it is opened, or goes.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }

  void hold(cudaStream_t stream) {
    stream_ = stream;
    EXPECT_EQ(cudaLaunchHostFunc(stream, &Gate::wait, &open_), 0);
  }
  void open() {
    open_ = true;
    EXPECT_EQ(cudaStreamSynchronize(stream_), 0);  // nobody looks at it any more
  }

 private:
  static void wait(void* open) {
    while (!static_cast<std::atomic<bool>*>(open)->load()) std::this_thread::yield();
  }

  std::atomic<bool> open_{false};
  cudaStream_t stream_ = nullptr;
};

float value_of(int rank, std::size_t i) {
  return static_cast<float>(rank * 10) + static_cast<float>(i % 7);
}

class NcclDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    int count = 0;
    ASSERT_EQ(cudaGetDeviceCount(&count), 0);
    ASSERT_GE(count, kSize);
    ncclComm_t comms[kSize];
    ASSERT_EQ(ncclCommInitAll(comms, kSize, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    for (int rank = 0; rank < kSize; ++rank) {
      Rank& r = ranks_[static_cast<std::size_t>(rank)];
      r.rank = rank;
      r.comm = comms[rank];
      ASSERT_EQ(cudaSetDevice(rank), 0);
      ASSERT_EQ(cudaStreamCreateWithFlags(&r.stream, 1), 0);
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&r.input), kBytes), 0);
      ASSERT_EQ(ncclMemAlloc(reinterpret_cast<void**>(&r.output), kBytes), ncclSuccess);
      write(r, 0);
    }
  }

  void TearDown() override {
    for (Rank& r : ranks_) {
      EXPECT_EQ(ncclCommDestroy(r.comm), ncclSuccess);
      EXPECT_EQ(cudaSetDevice(r.rank), 0);
      EXPECT_EQ(cudaFree(r.input), 0);
      EXPECT_EQ(ncclMemFree(r.output), ncclSuccess);
      EXPECT_EQ(cudaStreamDestroy(r.stream), 0);
    }
  }

  // The rank's values, plus something; and -1 for all output.
  void write(const Rank& r, float more) {
    std::vector<float> values(kSize * kCount);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(r.rank, i) + more;
    const std::vector<float> none(values.size(), -1);
    EXPECT_EQ(cudaMemcpy(r.input, values.data(), kBytes, 1), 0);
    EXPECT_EQ(cudaMemcpy(r.output, none.data(), kBytes, 1), 0);
  }

  std::vector<float> read(const float* memory, std::size_t count) {
    std::vector<float> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), memory, count * sizeof(float), 2), 0);
    return values;
  }

  template <typename Call>
  void enqueue(Call call) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (Rank& r : ranks_) EXPECT_EQ(call(r), ncclSuccess) << ncclGetLastError(r.comm);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }

  void synchronize() {
    for (Rank& r : ranks_) {
      EXPECT_EQ(cudaSetDevice(r.rank), 0);
      EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
      ncclResult_t error = ncclInternalError;
      EXPECT_EQ(ncclCommGetAsyncError(r.comm, &error), ncclSuccess);
      EXPECT_EQ(error, ncclSuccess) << ncclGetLastError(r.comm);
    }
  }

  template <typename Expected>
  void expect_output(std::size_t count, Expected expected) {
    for (const Rank& r : ranks_) {
      const std::vector<float> values = read(r.output, count);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(values[i], expected(r.rank, i)) << "rank " << r.rank << ", element " << i;
    }
  }

  static constexpr std::size_t kBytes = kSize * kCount * sizeof(float);
  std::vector<Rank> ranks_ = std::vector<Rank>(kSize);
};

float sum_at(std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < kSize; ++rank) sum += value_of(rank, i);
  return sum;
}

TEST_F(NcclDevices, AllReduce) {
  enqueue([](Rank& r) {
    return ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, r.stream);
  });
  synchronize();
  expect_output(kCount, [](int, std::size_t i) { return sum_at(i); });
}

TEST_F(NcclDevices, AllGatherAndReduceScatter) {
  enqueue([](Rank& r) {
    return ncclAllGather(r.input, r.output, kCount, ncclFloat, r.comm, r.stream);
  });
  synchronize();
  expect_output(kSize * kCount, [](int, std::size_t i) {
    return value_of(static_cast<int>(i / kCount), i % kCount);
  });
  enqueue([](Rank& r) {
    return ncclReduceScatter(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, r.stream);
  });
  synchronize();
  expect_output(kCount, [](int rank, std::size_t i) {
    return sum_at(static_cast<std::size_t>(rank) * kCount + i);
  });
}

TEST_F(NcclDevices, BroadcastAndReduce) {
  enqueue([](Rank& r) {
    return ncclBroadcast(r.input, r.output, kCount, ncclFloat, 2, r.comm, r.stream);
  });
  synchronize();
  expect_output(kCount, [](int, std::size_t i) { return value_of(2, i); });
  enqueue([](Rank& r) {
    return ncclReduce(r.input, r.output, kCount, ncclFloat, ncclMax, 1, r.comm, r.stream);
  });
  synchronize();
  expect_output(kCount, [](int rank, std::size_t i) { return value_of(rank == 1 ? 3 : 2, i); });
}

TEST_F(NcclDevices, SendAndReceive) {
  enqueue([](Rank& r) {
    const ncclResult_t sent =
        ncclSend(r.input, kCount, ncclFloat, (r.rank + 1) % kSize, r.comm, r.stream);
    if (sent != ncclSuccess) return sent;
    return ncclRecv(r.output, kCount, ncclFloat, (r.rank + kSize - 1) % kSize, r.comm, r.stream);
  });
  synchronize();
  expect_output(kCount,
                [](int rank, std::size_t i) { return value_of((rank + kSize - 1) % kSize, i); });
}

TEST_F(NcclDevices, DefaultStream) {
  enqueue([](Rank& r) {
    return ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, nullptr);
  });
  for (Rank& r : ranks_) {
    EXPECT_EQ(cudaSetDevice(r.rank), 0);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), 0);
  }
  expect_output(kCount, [](int, std::size_t i) { return sum_at(i); });
}

// Of one communicator, calls in host memory are made after those that were enqueued before them.
TEST_F(NcclDevices, CallsInHostMemoryKeepTheOrder) {
  Gate gate;
  gate.hold(ranks_[0].stream);
  enqueue([](Rank& r) {
    return ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, r.stream);
  });
  std::vector<std::thread> threads;
  for (const Rank& r : ranks_)
    threads.emplace_back([&r] {
      int value = r.rank;
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, r.comm, nullptr), ncclSuccess)
          << ncclGetLastError(r.comm);
      EXPECT_EQ(value, 6);
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  gate.open();
  for (std::thread& thread : threads) thread.join();
  synchronize();
  expect_output(kCount, [](int, std::size_t i) { return sum_at(i); });
}

TEST_F(NcclDevices, CallsInHostMemoryThatWaitForAStreamCanBeAborted) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(cudaSetDevice(0), 0);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess) << ncclGetLastError(nullptr);
  const Rank& r = ranks_[0];
  Gate gate;
  gate.hold(r.stream);
  EXPECT_EQ(ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, comm, r.stream),
            ncclSuccess);
  std::thread waiter([comm] {
    int value = 1;
    EXPECT_NE(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ncclSuccess);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  waiter.join();
}

// Programs for one device choose none, or only after they have made their communicator.
TEST_F(NcclDevices, MayBeChosenLater) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  for (const bool on_default_stream : {true, false}) {
    std::thread([&, on_default_stream] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess) << ncclGetLastError(nullptr);
      if (on_default_stream) {
        EXPECT_EQ(cudaSetDevice(0), 0);
      }
      const Rank& r = ranks_[0];
      const cudaStream_t stream = on_default_stream ? nullptr : r.stream;
      EXPECT_EQ(ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, comm, stream),
                ncclSuccess)
          << ncclGetLastError(comm);
      EXPECT_EQ(cudaStreamSynchronize(stream), 0);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
      const std::vector<float> values = read(r.output, kCount);
      for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(values[i], value_of(0, i));
      write(r, 0);
    }).join();
  }
}

// Any number of ranks, as long as their streams do not wait for one another.
TEST_F(NcclDevices, MayBeShared) {
  const int devices[] = {0, 0};
  ncclComm_t pair[2] = {};
  ASSERT_EQ(ncclCommInitAll(pair, 2, devices), ncclSuccess);
  ASSERT_EQ(cudaSetDevice(0), 0);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, 1), 0);
  const Rank& r = ranks_[0];
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, pair[0], r.stream),
            ncclSuccess);
  EXPECT_EQ(ncclAllReduce(r.input + kCount, r.output + kCount, kCount, ncclFloat, ncclSum, pair[1],
                          other),
            ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
  EXPECT_EQ(cudaStreamSynchronize(other), 0);
  const std::vector<float> values = read(r.output, 2 * kCount);
  for (std::size_t i = 0; i < 2 * kCount; ++i)
    EXPECT_EQ(values[i], value_of(0, i % kCount) + value_of(0, kCount + i % kCount));
  for (const ncclComm_t comm : pair) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), 0);
}

// As many as a device is sure to run beside each other have kernels, more are staged; both are
// right.
TEST_F(NcclDevices, UpToEightMayShareOne) {
  ASSERT_EQ(cudaSetDevice(0), 0);
  float* memory = nullptr;
  constexpr std::size_t kMost = 8;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory), 2 * kMost * kCount * sizeof(float)), 0);
  for (std::size_t size = 2; size <= kMost; ++size) {
    const std::vector<int> devices(size, 0);
    std::vector<ncclComm_t> comms(size);
    std::vector<cudaStream_t> streams(size);
    std::vector<float> inputs(size * kCount);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      inputs[i] = value_of(static_cast<int>(i / kCount), i % kCount);
    ASSERT_EQ(cudaMemcpy(memory, inputs.data(), inputs.size() * sizeof(float), 1), 0);
    ASSERT_EQ(ncclCommInitAll(comms.data(), static_cast<int>(size), devices.data()), ncclSuccess);
    for (cudaStream_t& stream : streams) ASSERT_EQ(cudaStreamCreateWithFlags(&stream, 1), 0);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (std::size_t rank = 0; rank < size; ++rank)
      EXPECT_EQ(ncclAllReduce(memory + rank * kCount, memory + (kMost + rank) * kCount, kCount,
                              ncclFloat, ncclSum, comms[rank], streams[rank]),
                ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    for (const cudaStream_t stream : streams) EXPECT_EQ(cudaStreamSynchronize(stream), 0);
    const std::vector<float> sums = read(memory + kMost * kCount, size * kCount);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float sum = 0;
      for (std::size_t rank = 0; rank < size; ++rank)
        sum += value_of(static_cast<int>(rank), i % kCount);
      ASSERT_EQ(sums[i], sum) << size << " ranks, at " << i;
    }
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    for (const cudaStream_t stream : streams) EXPECT_EQ(cudaStreamDestroy(stream), 0);
  }
  EXPECT_EQ(cudaFree(memory), 0);
}

TEST_F(NcclDevices, Graphs) {
  std::vector<CUgraph_st*> instances(kSize);
  for (Rank& r : ranks_) ASSERT_EQ(cudaStreamBeginCapture(r.stream, 0), 0);
  enqueue([](Rank& r) {
    return ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, r.stream);
  });
  for (Rank& r : ranks_) {
    CUgraph_st* graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
    ASSERT_EQ(cudaGraphInstantiate(&instances[static_cast<std::size_t>(r.rank)], graph, 0), 0);
    EXPECT_EQ(cudaGraphDestroy(graph), 0);
  }
  expect_output(kCount, [](int, std::size_t) { return -1.0F; });
  for (int replay = 0; replay < 3; ++replay) {
    const auto more = static_cast<float>(replay);
    for (const Rank& r : ranks_) write(r, more);
    for (Rank& r : ranks_)
      EXPECT_EQ(cudaGraphLaunch(instances[static_cast<std::size_t>(r.rank)], r.stream), 0);
    synchronize();
    expect_output(kCount, [more](int, std::size_t i) { return sum_at(i) + kSize * more; });
  }
  for (CUgraph_st* const instance : instances) EXPECT_EQ(cudaGraphExecDestroy(instance), 0);
}

std::uint64_t memory_of(ncclComm_t comm) {
  std::uint64_t bytes = 0;
  EXPECT_EQ(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes), ncclSuccess);
  return bytes;
}

// By whichever way ranks of one process become a communicator: those that have memory of devices
// for it have kernels. A launch that fails tells who makes a call.
TEST_F(NcclDevices, KernelsMakeTheCallsOfRanksOfOneProcess) {
  if (memory_of(ranks_[0].comm) == 0)
    GTEST_SKIP() << "this build has no kernels, or they are turned off";
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> joined(kSize);
  std::vector<ncclComm_t> halves(kSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank)
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      EXPECT_EQ(cudaSetDevice(rank), 0);
      EXPECT_EQ(ncclCommInitRank(&joined[r], kSize, id, rank), ncclSuccess);
      EXPECT_EQ(ncclCommSplit(joined[r], rank == 3 ? NCCL_SPLIT_NOCOLOR : 0, 3 - rank, &halves[r],
                              nullptr),
                ncclSuccess);
    });
  for (std::thread& thread : threads) thread.join();
  for (const ncclComm_t comm : joined) EXPECT_GT(memory_of(comm), 0U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GT(memory_of(halves[i]), 0U);
    tutti_stand_in_fail("cuLaunchKernel", 719, 0);
    EXPECT_NE(ncclAllReduce(ranks_[i].input, ranks_[i].output, kCount, ncclFloat, ncclSum,
                            halves[i], ranks_[i].stream),
              ncclSuccess);
  }
  // The test's own memory and streams serve any of them.
  for (std::size_t i = 0; i < kSize; ++i) std::swap(joined[i], ranks_[i].comm);
  enqueue([](Rank& r) {
    return ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, r.stream);
  });
  synchronize();
  expect_output(kCount, [](int, std::size_t i) { return sum_at(i); });
  for (const ncclComm_t comm : joined) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  for (const ncclComm_t comm : halves) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// What an aborted communicator had is not lost to those after it.
TEST_F(NcclDevices, AreNotUsedUpByAborts) {
  const std::uint64_t before = memory_of(ranks_[0].comm);
  std::uint64_t later = 0;
  for (int time = 0; time < 40; ++time) {
    ncclComm_t comms[kSize];
    ASSERT_EQ(ncclCommInitAll(comms, kSize, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    if (time == 0) later = memory_of(comms[0]);
    EXPECT_EQ(memory_of(comms[0]), later);  // as many channels as the first had
    EXPECT_EQ(ncclAllReduce(ranks_[0].input, ranks_[0].output, kCount, ncclFloat, ncclSum, comms[0],
                            ranks_[0].stream),
              ncclSuccess);
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(ranks_[0].stream), 0);
  }
  EXPECT_EQ(before > 0, later > 0);
}

// A communicator that is destroyed has done what was enqueued; one that is aborted goes at once.
TEST_F(NcclDevices, EndWithWorkOnTheStreams) {
  enqueue([](Rank& r) {
    return ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, r.stream);
  });
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t pair[2] = {};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(cudaSetDevice(rank), 0);
    EXPECT_EQ(ncclCommInitRank(&pair[rank], 2, id, rank), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  // The other rank never comes.
  EXPECT_EQ(ncclAllReduce(ranks_[0].input, ranks_[0].output, kCount, ncclFloat, ncclSum, pair[0],
                          ranks_[0].stream),
            ncclSuccess);
  EXPECT_EQ(ncclCommAbort(pair[0]), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(pair[1]), ncclSuccess);
  synchronize();
}

// Each rank's factor lies in memory of its device, or of the host; it is what it is when the stream
// comes to the call, of a graph, too.
class NcclFactors : public NcclDevices {
 protected:
  void SetUp() override {
    NcclDevices::SetUp();
    for (Rank& r : ranks_) {
      const auto i = static_cast<std::size_t>(r.rank);
      EXPECT_EQ(cudaSetDevice(r.rank), 0);
      EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&factors_[i]), sizeof(float)), 0);
      EXPECT_EQ(
          ncclRedOpCreatePreMulSum(&ops_[i], factors_[i], ncclFloat, ncclScalarDevice, r.comm),
          ncclSuccess)
          << ncclGetLastError(r.comm);
    }
  }
  void TearDown() override {
    for (Rank& r : ranks_) {
      const auto i = static_cast<std::size_t>(r.rank);
      EXPECT_EQ(ncclRedOpDestroy(ops_[i], r.comm), ncclSuccess);
      EXPECT_EQ(cudaFree(factors_[i]), 0);
    }
    NcclDevices::TearDown();
  }

  static float factor_of(int rank, int time) { return static_cast<float>(rank + 1 + 10 * time); }
  static float scaled_sum_at(std::size_t i, int time) {
    float sum = 0;
    for (int rank = 0; rank < kSize; ++rank) sum += factor_of(rank, time) * value_of(rank, i);
    return sum;
  }
  // On the rank's stream: from memory that must stay until the stream has come to it.
  void set(const Rank& r, const float& factor) {
    const auto i = static_cast<std::size_t>(r.rank);
    EXPECT_EQ(cudaMemcpyAsync(factors_[i], &factor, sizeof factor, 1, r.stream), 0);
  }
  ncclResult_t sum(const Rank& r, float* output) {
    return ncclAllReduce(r.input, output, kCount, ncclFloat, ops_[static_cast<std::size_t>(r.rank)],
                         r.comm, r.stream);
  }

  std::vector<float*> factors_ = std::vector<float*>(kSize);
  std::vector<ncclRedOp_t> ops_ = std::vector<ncclRedOp_t>(kSize);
};

TEST_F(NcclFactors, AreReadWhenTheStreamComesToTheCall) {
  std::vector<float> wanted(2 * kSize);
  Gate gate;
  gate.hold(ranks_[0].stream);
  for (int time = 0; time < 2; ++time) {
    for (const Rank& r : ranks_) {
      float& factor = wanted[static_cast<std::size_t>(kSize * time + r.rank)];
      factor = factor_of(r.rank, time);
      set(r, factor);
    }
    enqueue([&](Rank& r) { return sum(r, r.output + static_cast<std::size_t>(time) * kCount); });
  }
  gate.open();
  synchronize();
  expect_output(2 * kCount, [](int, std::size_t i) {
    return scaled_sum_at(i % kCount, static_cast<int>(i / kCount));
  });
}

TEST_F(NcclFactors, AreReadAtEveryReplay) {
  std::vector<CUgraph_st*> instances(kSize);
  for (Rank& r : ranks_) ASSERT_EQ(cudaStreamBeginCapture(r.stream, 0), 0);
  enqueue([&](Rank& r) { return sum(r, r.output); });
  for (Rank& r : ranks_) {
    CUgraph_st* graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
    ASSERT_EQ(cudaGraphInstantiate(&instances[static_cast<std::size_t>(r.rank)], graph, 0), 0);
    EXPECT_EQ(cudaGraphDestroy(graph), 0);
  }
  for (int time = 1; time < 4; ++time) {
    std::vector<float> wanted;
    for (const Rank& r : ranks_) wanted.push_back(factor_of(r.rank, time));
    for (const Rank& r : ranks_) {
      set(r, wanted[static_cast<std::size_t>(r.rank)]);
      EXPECT_EQ(cudaGraphLaunch(instances[static_cast<std::size_t>(r.rank)], r.stream), 0);
    }
    synchronize();
    expect_output(kCount, [time](int, std::size_t i) { return scaled_sum_at(i, time); });
  }
  for (CUgraph_st* const instance : instances) EXPECT_EQ(cudaGraphExecDestroy(instance), 0);
}

// Calls in host memory, on a stream and not, may have a factor that lies in a device's memory.
TEST_F(NcclFactors, InDeviceMemoryServeCallsInHostMemory) {
  std::vector<float> wanted;
  for (const Rank& r : ranks_) wanted.push_back(factor_of(r.rank, 0));
  for (const Rank& r : ranks_) {
    set(r, wanted[static_cast<std::size_t>(r.rank)]);
    EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
  }
  for (const bool on_stream : {true, false}) {
    std::vector<float> values(kSize, 2);
    enqueue([&](Rank& r) {
      const auto i = static_cast<std::size_t>(r.rank);
      return ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ops_[i], r.comm,
                           on_stream ? r.stream : nullptr);
    });
    for (const Rank& r : ranks_) {
      EXPECT_EQ(cudaSetDevice(r.rank), 0);
      EXPECT_EQ(cudaStreamSynchronize(on_stream ? r.stream : nullptr), 0);
    }
    EXPECT_EQ(values, std::vector<float>(kSize, 2 * (1 + 2 + 3 + 4)));
  }
}

TEST_F(NcclFactors, ThatAreToBeReadNowLieInHostMemory) {
  ncclRedOp_t op = ncclSum;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, factors_[0], ncclFloat, ncclScalarHostImmediate,
                                     ranks_[0].comm),
            ncclInvalidArgument);
  EXPECT_NE(std::strstr(ncclGetLastError(nullptr), "ncclScalarDevice"), nullptr)
      << ncclGetLastError(nullptr);
}

TEST_F(NcclFactors, OfAnotherTypeAreRefusedAtTheCall) {
  const Rank& r = ranks_[0];
  EXPECT_EQ(ncclAllReduce(r.input, r.output, kCount, ncclInt, ops_[0], r.comm, r.stream),
            ncclInvalidArgument);
  EXPECT_NE(std::strstr(ncclGetLastError(nullptr), "scalar of premul_sum is float"), nullptr)
      << ncclGetLastError(nullptr);
}

// Nobody is told at the call.
TEST_F(NcclDevices, FailuresOnStreamsAreTheCommunicators) {
  enqueue([](Rank& r) {
    const int next = (r.rank + 1) % kSize;
    EXPECT_EQ(ncclSend(r.input, kCount, ncclFloat, next, r.comm, r.stream), ncclSuccess);
    return ncclRecv(r.output, kCount - 1, ncclFloat, (r.rank + kSize - 1) % kSize, r.comm,
                    r.stream);
  });
  for (Rank& r : ranks_) {
    EXPECT_EQ(cudaSetDevice(r.rank), 0);
    EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(r.comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclInvalidUsage);
  }
  EXPECT_NE(std::strstr(ncclGetLastError(nullptr), "sends and receives"), nullptr)
      << ncclGetLastError(nullptr);
}

TEST_F(NcclDevices, ErrorsOfTheDriverAreTold) {
  Rank& r = ranks_[0];
  tutti_stand_in_fail("cuPointerGetAttributes", 719, 0);
  EXPECT_NE(ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, r.stream),
            ncclSuccess);
  EXPECT_NE(std::strstr(ncclGetLastError(r.comm), "CUDA_ERROR_LAUNCH_FAILED"), nullptr)
      << ncclGetLastError(r.comm);
}

}  // namespace
