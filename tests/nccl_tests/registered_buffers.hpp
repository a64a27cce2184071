// registered_buffers.hpp: buffers of ranks that are processes, registered or not, and sums in them.
#pragma once

#include <chrono>
#include <thread>
#include <vector>

#include "nccl_tests/device_processes.hpp"

namespace tutti::testing {

inline constexpr std::size_t kCount = 50021;  // of numbers: too many for messages of low latency
inline constexpr std::size_t kAt = 1024;      // within the allocation

// All ranks come here.
inline void meet(Member& member, Shared& shared, int& meetings) {
  ++shared.met;
  ++meetings;
  while (shared.met < meetings * member.size()) std::this_thread::yield();
}

template <class Holds>
void wait_until(Holds holds) {
  while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Memory for a sum of all ranks, in place.
struct Buffer {
  explicit Buffer(Member& owner) : member(owner) {
    DEMAND(ncclMemAlloc(&allocation, (kAt + kCount) * sizeof(int)) == ncclSuccess);
    numbers = static_cast<int*>(allocation) + kAt;
  }
  // In memory that is another's.
  Buffer(Member& owner, void* memory) : member(owner), allocation(memory) {
    numbers = static_cast<int*>(allocation) + kAt;
  }
  void fill() const {
    const std::vector<int> values = filled(member.rank(), kCount);
    DEMAND(cudaMemcpy(numbers, values.data(), kCount * sizeof(int), 1) == 0);
  }
  void enregister() {
    DEMAND(ncclCommRegister(member.comm(), numbers, kCount * sizeof(int), &handle) == ncclSuccess);
  }
  void deregister() { DEMAND(ncclCommDeregister(member.comm(), handle) == ncclSuccess); }
  ncclResult_t enqueue_sum() const {
    return ncclAllReduce(numbers, numbers, kCount, ncclInt, ncclSum, member.comm(),
                         member.stream());
  }
  void expect_sum(int times = 1) const {
    int factor = 1;
    for (int time = 1; time < times; ++time) factor *= member.size();
    const std::vector<int> sums = member.values(numbers, kCount);
    for (std::size_t i = 0; i < kCount; ++i) DEMAND(sums[i] == factor * sum_at(member.size(), i));
  }
  void sum() const {
    fill();
    DEMAND(enqueue_sum() == ncclSuccess);
    member.synchronize();
    expect_sum();
  }
  // When nobody has it mapped, which is once they are idle. Of a process that is ending, lines may
  // end before its mappings do: members whose memory is looked at so stay until all have been.
  void give_back() const {
    wait_until([&] { return !tutti_stand_in_is_mapped_elsewhere(allocation); });
    DEMAND(ncclMemFree(allocation) == ncclSuccess);
  }

  Member& member;
  void* allocation = nullptr;
  int* numbers = nullptr;
  void* handle = nullptr;
};

// Pieces that this process has, once peers have mapped what the library itself shares with them.
inline std::size_t settled_memory() {
  std::size_t before = 0;
  for (std::size_t now = device_memory(); now != before; now = device_memory()) {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return before;
}

// With the memory of so many peers more than before.
inline void wait_for_mappings(std::size_t before, std::size_t peers) {
  wait_until([&] { return device_memory() == before + peers; });
}

inline std::size_t peers_of(const Member& member) {
  return static_cast<std::size_t>(member.size()) - 1;
}

}  // namespace tutti::testing
