// What libnccl.so.2 makes of device memory and streams, through the C interface alone, as a program
// for CUDA uses it: four devices, one thread, calls in groups. On the stand-in for CUDA.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tutti/nccl.h"

// Of the CUDA runtime's header, which need not be there.
extern "C" {
struct CUgraph_st;
int cudaGetDeviceCount(int* count);
int cudaSetDevice(int device);
int cudaMalloc(void** memory, std::size_t bytes);
int cudaFree(void* memory);
int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind);
int cudaPointerGetAttributes(void* attributes, const void* memory);
int cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
int cudaStreamDestroy(cudaStream_t stream);
int cudaStreamSynchronize(cudaStream_t stream);
int cudaStreamBeginCapture(cudaStream_t stream, int mode);
int cudaStreamEndCapture(cudaStream_t stream, CUgraph_st** graph);
int cudaGraphInstantiate(CUgraph_st** instance, CUgraph_st* graph, unsigned long long flags);
int cudaGraphLaunch(CUgraph_st* instance, cudaStream_t stream);
int cudaGraphExecDestroy(CUgraph_st* instance);
int cudaGraphDestroy(CUgraph_st* graph);
void tutti_stand_in_fail(const char* function, int code, int after);
}

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

float value_of(int rank, std::size_t i) {
  return static_cast<float>(rank * 10) + static_cast<float>(i % 7);
}

class NcclDevices : public ::testing::Test {
 protected:
  void SetUp() override {
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

TEST_F(NcclDevices, ErrorsOfTheDriverAreTold) {
  Rank& r = ranks_[0];
  tutti_stand_in_fail("cuPointerGetAttributes", 719, 0);
  EXPECT_NE(ncclAllReduce(r.input, r.output, kCount, ncclFloat, ncclSum, r.comm, r.stream),
            ncclSuccess);
  EXPECT_NE(std::strstr(ncclGetLastError(r.comm), "CUDA_ERROR_LAUNCH_FAILED"), nullptr)
      << ncclGetLastError(r.comm);
}

}  // namespace
