// device_processes.hpp: ranks that are processes of their own, on the stand-in for CUDA, and what
// each of them checks. The parent never comes near CUDA: it starts the ranks, and gathers how they
// ended.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kit/cuda_stand_in/stand_in.hpp"
#include "nccl_tests/cuda_runtime.hpp"
#include "tutti/nccl.h"

namespace tutti::testing {

inline constexpr int kDevices = 2;
inline constexpr int kSkipped = 77;

// What the processes share.
struct Shared {
  std::atomic<int> ready{0};  // 1: there is an id
  std::atomic<int> met{0};    // ranks that have come somewhere
  ncclUniqueId id;
};

// Ends the process where the words say what was expected.
inline void demand(bool good, const char* words, int line) {
  if (good) return;
  std::fprintf(stderr, "line %d: %s (%s)\n", line, words, ncclGetLastError(nullptr));
  std::fflush(stderr);
  ::_exit(1);
}
#define DEMAND(condition) ::tutti::testing::demand(condition, #condition, __LINE__)

// One rank's side.
class Member {
 public:
  Member(Shared& shared, int rank, int size) : rank_(rank), size_(size) {
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    ::alarm(100);  // whatever happens, it ends
    if (rank == 0) {
      DEMAND(ncclGetUniqueId(&shared.id) == ncclSuccess);
      shared.ready = 1;
    }
    while (shared.ready == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    DEMAND(cudaSetDevice(rank % kDevices) == 0);
    DEMAND(cudaStreamCreateWithFlags(&stream_, 1) == 0);
    DEMAND(ncclCommInitRank(&comm_, size, shared.id, rank) == ncclSuccess);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }

  bool has_kernels() const {
    std::uint64_t bytes = 0;
    DEMAND(ncclCommMemStats(comm_, ncclStatGpuMemTotal, &bytes) == ncclSuccess);
    return bytes > 0;
  }
  int* memory(const std::vector<int>& values) const {
    void* made = nullptr;
    DEMAND(cudaMalloc(&made, (values.size() + 1) * sizeof(int)) == 0);
    DEMAND(cudaMemcpy(made, values.data(), values.size() * sizeof(int), 1) == 0);
    return static_cast<int*>(made);
  }
  std::vector<int> values(const int* memory, std::size_t count) const {
    std::vector<int> read(count);
    DEMAND(cudaMemcpy(read.data(), memory, count * sizeof(int), 2) == 0);
    return read;
  }
  void synchronize() const {
    DEMAND(cudaStreamSynchronize(stream_) == 0);
    ncclResult_t error = ncclInternalError;
    DEMAND(ncclCommGetAsyncError(comm_, &error) == ncclSuccess);
    DEMAND(error == ncclSuccess);
  }
  void end() {
    DEMAND(ncclCommDestroy(comm_) == ncclSuccess);
    DEMAND(cudaStreamDestroy(stream_) == 0);
  }

 private:
  int rank_;
  int size_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// Names and values in the environment of ranks.
using Variables = std::vector<std::pair<std::string, std::string>>;

// That of one rank alone is the word of that number.
inline void set_variable(const std::string& name, const std::string& value, int rank) {
  constexpr std::string_view kByRank = "_BY_RANK";
  if (!name.ends_with(kByRank)) {
    ::setenv(name.c_str(), value.c_str(), 1);
    return;
  }
  std::istringstream words(value);
  std::string word;
  for (int i = 0; i <= rank; ++i) words >> word;
  ::setenv(name.substr(0, name.size() - kByRank.size()).c_str(), word.c_str(), 1);
}

// The exit codes, or minus the signals, of ranks that do this.
// With a file, what they say goes there.
inline std::vector<int> run_ranks(int size, const std::function<void(Member&, Shared&)>& work,
                                  const Variables& variables = {}, const std::string& file = "") {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const shared = new (memory) Shared;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (const auto& [name, value] : variables) set_variable(name, value, rank);
      if (!file.empty()) DEMAND(std::freopen(file.c_str(), "a", stderr) != nullptr);
      Member member(*shared, rank, size);
      work(member, *shared);
      std::exit(0);
    }
    processes.push_back(child);
  }
  std::vector<int> codes;
  for (const pid_t process : processes) {
    int status = 0;
    EXPECT_EQ(::waitpid(process, &status, 0), process);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  ::munmap(memory, sizeof(Shared));
  return codes;
}

inline std::vector<int> filled(int rank, std::size_t count) {
  std::vector<int> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = rank * 100 + static_cast<int>(i);
  return values;
}

inline int sum_at(int size, std::size_t i) {
  return size * (size - 1) / 2 * 100 + size * static_cast<int>(i);
}

inline void check_sums(const Member& member, std::size_t count) {
  int* const input = member.memory(filled(member.rank(), count));
  int* const output = member.memory(std::vector<int>(count, -1));
  for (int time = 0; time < 3; ++time)
    DEMAND(ncclAllReduce(input, output, count, ncclInt, ncclSum, member.comm(), member.stream()) ==
           ncclSuccess);
  member.synchronize();
  const std::vector<int> sums = member.values(output, count);
  for (std::size_t i = 0; i < count; ++i) DEMAND(sums[i] == sum_at(member.size(), i));
  DEMAND(cudaFree(input) == 0);
  DEMAND(cudaFree(output) == 0);
}

inline void check_exchanges(const Member& member, std::size_t count) {
  const auto size = static_cast<std::size_t>(member.size());
  const auto rank = static_cast<std::size_t>(member.rank());
  int* const input = member.memory(filled(member.rank(), count * size));
  int* const output = member.memory(std::vector<int>(count * size, -1));
  DEMAND(ncclAllGather(input, output, count, ncclInt, member.comm(), member.stream()) ==
         ncclSuccess);
  member.synchronize();
  std::vector<int> got = member.values(output, count * size);
  for (std::size_t i = 0; i < got.size(); ++i)
    DEMAND(got[i] == static_cast<int>(i / count * 100 + i % count));
  DEMAND(ncclReduceScatter(input, output, count, ncclInt, ncclSum, member.comm(),
                           member.stream()) == ncclSuccess);
  member.synchronize();
  got = member.values(output, count);
  for (std::size_t i = 0; i < count; ++i) DEMAND(got[i] == sum_at(member.size(), rank * count + i));
  DEMAND(ncclAlltoAll(input, input, count, ncclInt, member.comm(), member.stream()) == ncclSuccess);
  member.synchronize();
  got = member.values(input, count * size);
  for (std::size_t i = 0; i < got.size(); ++i)
    DEMAND(got[i] == static_cast<int>(i / count * 100 + rank * count + i % count));
  DEMAND(cudaFree(input) == 0);
  DEMAND(cudaFree(output) == 0);
}

// Pieces of it that this process has.
inline std::size_t device_memory() {
  TuttiStandInCounts counts{};
  tutti_stand_in_count(&counts);
  return counts.device_memory;
}

// Of what network cards have written into devices' memory.
inline std::size_t flushes() {
  TuttiStandInCounts counts{};
  tutti_stand_in_count(&counts);
  return counts.flushes;
}

inline std::vector<int> zeros(int size) {
  return std::vector<int>(static_cast<std::size_t>(size), 0);
}

}  // namespace tutti::testing
