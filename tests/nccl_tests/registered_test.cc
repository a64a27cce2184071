// Device memory that ranks in processes of one host register with libnccl.so.2: peers map it, calls
// in it are right whoever has registered what, and nobody has it mapped when its owner gives it
// back. That data does not go through slots is looked at where it can be seen (tests/gpu_world).
#include <fcntl.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "nccl_tests/registered_buffers.hpp"
#include "unit/topology/files.hpp"

extern "C" int cuMemAllocAsync(unsigned long long* memory, std::size_t bytes, CUstream_st* stream);

namespace {

using namespace tutti::testing;

// Again and again, so that addresses come back as other allocations.
TEST(NcclRegistered, PeersMapItUntilItIsDeregistered) {
  for (const int size : {2, 3}) {
    EXPECT_EQ(run_ranks(size,
                        [](Member& member, Shared& shared) {
                          if (!member.has_kernels()) return member.end();
                          int meetings = 0;
                          for (int time = 0; time < 4; ++time) {
                            Buffer buffer(member);
                            buffer.sum();
                            meet(member, shared, meetings);
                            const std::size_t before = settled_memory();
                            meet(member, shared, meetings);
                            buffer.enregister();
                            wait_for_mappings(before, peers_of(member));
                            for (int call = 0; call < 3; ++call) buffer.sum();
                            buffer.deregister();
                            wait_for_mappings(before, 0);
                            buffer.sum();
                            buffer.give_back();
                            meet(member, shared, meetings);
                          }
                          member.end();
                        }),
              zeros(size))
        << size;
  }
}

TEST(NcclRegistered, WindowsAreMappedToo) {
  EXPECT_EQ(
      run_ranks(2,
                [](Member& member, Shared& shared) {
                  if (!member.has_kernels()) return member.end();
                  int meetings = 0;
                  Buffer buffer(member);
                  const std::size_t before = settled_memory();
                  meet(member, shared, meetings);
                  ncclWindow_t window = nullptr;
                  DEMAND(ncclCommWindowRegister(member.comm(), buffer.numbers, kCount * sizeof(int),
                                                &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
                  wait_for_mappings(before, 1);
                  buffer.sum();
                  meet(member, shared, meetings);
                  DEMAND(ncclCommWindowDeregister(member.comm(), window) == ncclSuccess);
                  buffer.give_back();
                  meet(member, shared, meetings);
                  member.end();
                }),
      zeros(2));
}

// One rank's buffer is registered, and another's is not; and their input and not their output.
TEST(NcclRegistered, RanksNeedNotAgree) {
  EXPECT_EQ(
      run_ranks(3,
                [](Member& member, Shared& shared) {
                  int meetings = 0;
                  for (int who = 0; who < 8; ++who) {
                    Buffer buffer(member);
                    Buffer other(member);
                    const bool mine = (who >> member.rank() & 1) != 0;
                    if (mine) buffer.enregister();
                    for (int time = 0; time < 20; ++time) buffer.sum();
                    for (int time = 0; time < 10; ++time) {
                      buffer.fill();
                      DEMAND(ncclAllReduce(buffer.numbers, other.numbers, kCount, ncclInt, ncclSum,
                                           member.comm(), member.stream()) == ncclSuccess);
                      member.synchronize();
                      other.expect_sum();
                    }
                    if (mine) buffer.deregister();
                    buffer.give_back();
                    other.give_back();
                    meet(member, shared, meetings);
                  }
                  member.end();
                }),
      zeros(3));
}

TEST(NcclRegistered, ManyBuffersAreMapped) {
  EXPECT_EQ(run_ranks(2,
                      [](Member& member, Shared& shared) {
                        int meetings = 0;
                        std::vector<Buffer> buffers;
                        for (int i = 0; i < 40; ++i) buffers.emplace_back(member).enregister();
                        for (const Buffer& buffer : buffers) buffer.sum();
                        for (Buffer& buffer : buffers) buffer.deregister();
                        for (const Buffer& buffer : buffers) buffer.give_back();
                        meet(member, shared, meetings);
                        member.end();
                      }),
            zeros(2));
}

TEST(NcclRegistered, GraphsReplayInIt) {
  EXPECT_EQ(run_ranks(2,
                      [](Member& member, Shared& shared) {
                        int meetings = 0;
                        Buffer buffer(member);
                        const std::size_t before = settled_memory();
                        meet(member, shared, meetings);
                        buffer.enregister();
                        if (member.has_kernels()) wait_for_mappings(before, 1);
                        CUgraph_st* graph = nullptr;
                        CUgraph_st* instance = nullptr;
                        DEMAND(cudaStreamBeginCapture(member.stream(), 0) == 0);
                        DEMAND(buffer.enqueue_sum() == ncclSuccess);
                        DEMAND(cudaStreamEndCapture(member.stream(), &graph) == 0);
                        DEMAND(cudaGraphInstantiate(&instance, graph, 0) == 0);
                        const auto replay = [&] {
                          buffer.fill();
                          for (int time = 0; time < 3; ++time)
                            DEMAND(cudaGraphLaunch(instance, member.stream()) == 0);
                          member.synchronize();
                          buffer.expect_sum(3);
                        };
                        replay();
                        if (member.rank() == 0) buffer.deregister();
                        replay();
                        if (member.rank() == 1) buffer.deregister();
                        replay();
                        DEMAND(cudaGraphExecDestroy(instance) == 0);
                        DEMAND(cudaGraphDestroy(graph) == 0);
                        buffer.give_back();
                        meet(member, shared, meetings);
                        member.end();
                      }),
            zeros(2));
}

// A communicator that goes takes its registrations along.
TEST(NcclRegistered, NothingIsMappedOnceTheCommunicatorIsGone) {
  EXPECT_EQ(run_ranks(3,
                      [](Member& member, Shared& shared) {
                        int meetings = 0;
                        Buffer buffer(member);
                        buffer.enregister();
                        for (int time = 0; time < 5; ++time) buffer.sum();
                        member.end();
                        buffer.give_back();
                        meet(member, shared, meetings);
                      }),
            zeros(3));
}

// Memory of a pool has no handle: it stays with slots, and that is said once.
TEST(NcclRegistered, MemoryOfPoolsStaysWithSlots) {
  const tutti::testing::TempDir dir;
  const std::string told = dir.path() + "/told";
  const auto work = [&](Member& member, Shared& shared) {
    int meetings = 0;
    DEMAND(member.rank() != 0 || std::freopen(told.c_str(), "w", stderr) != nullptr);
    for (int time = 0; time < 2; ++time) {
      unsigned long long memory = 0;
      DEMAND(cuMemAllocAsync(&memory, kCount * sizeof(int), nullptr) == 0);
      const std::size_t before = settled_memory();
      meet(member, shared, meetings);
      auto* const numbers = reinterpret_cast<int*>(memory);
      void* handle = nullptr;
      DEMAND(ncclCommRegister(member.comm(), numbers, kCount * sizeof(int), &handle) ==
             ncclSuccess);
      const std::vector<int> values = filled(member.rank(), kCount);
      DEMAND(cudaMemcpy(numbers, values.data(), kCount * sizeof(int), 1) == 0);
      DEMAND(ncclAllReduce(numbers, numbers, kCount, ncclInt, ncclSum, member.comm(),
                           member.stream()) == ncclSuccess);
      member.synchronize();
      DEMAND(member.values(numbers, kCount).back() == sum_at(2, kCount - 1));
      DEMAND(time == 0 || device_memory() <= before);
      DEMAND(ncclCommDeregister(member.comm(), handle) == ncclSuccess);
      DEMAND(cudaFree(numbers) == 0);
      meet(member, shared, meetings);
    }
    const bool has_kernels = member.has_kernels();
    member.end();
    std::fflush(stderr);
    if (!has_kernels) std::exit(kSkipped);
  };
  const auto codes = run_ranks(2, work, {{"NCCL_DEBUG", "INFO"}});
  if (codes == std::vector<int>(2, kSkipped)) GTEST_SKIP() << "there are no kernels";
  EXPECT_EQ(codes, zeros(2));
  std::ifstream file(told);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string reason = "registered memory goes through slots: other processes can have";
  const std::size_t first = text.find(reason);
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find(reason, first + 1), std::string::npos) << text;
}

// As a child that keeps nothing but the sockets: on a device it would not have its parent's memory.
[[noreturn]] void live_on(Shared& shared) {
  for (int number = 0; number < 1024; ++number) {
    struct stat status = {};
    if (::fstat(number, &status) != 0) continue;
    if (S_ISSOCK(status.st_mode))
      ::fcntl(number, F_SETFD, 0);
    else
      ::close(number);
  }
  shared.ready = 2;
  ::execl("/bin/sleep", "sleep", "8", nullptr);  // longer than anybody waits
  ::_exit(1);
}

// The process of a rank is killed while peers have its memory mapped and it has theirs, and while
// they wait for it in a call; a child of it lives on, with copies of its sockets.
TEST(NcclRegistered, APeerIsKilled) {
  const auto codes = run_ranks(3, [](Member& member, Shared& shared) {
    int meetings = 0;
    Buffer buffer(member);
    const std::size_t before = settled_memory();
    meet(member, shared, meetings);
    buffer.enregister();
    if (member.has_kernels()) wait_for_mappings(before, 2);
    buffer.sum();
    meet(member, shared, meetings);
    if (member.rank() == 1) {
      if (::fork() == 0) live_on(shared);
      while (shared.ready < 2) std::this_thread::yield();
      std::raise(SIGKILL);
    }
    static_cast<void>(buffer.enqueue_sum());
    DEMAND(cudaStreamSynchronize(member.stream()) == 0);
    buffer.deregister();
    buffer.give_back();
    ++shared.met;
    while (shared.met < 8) std::this_thread::yield();  // an abort would be heard of, too
    DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, -SIGKILL, 0}));
}

// One rank aborts while the others are in a call that uses its memory, and gives that back at once.
TEST(NcclRegistered, ARankAborts) {
  EXPECT_EQ(run_ranks(3,
                      [](Member& member, Shared& shared) {
                        int meetings = 0;
                        Buffer buffer(member);
                        const std::size_t before = settled_memory();
                        meet(member, shared, meetings);
                        buffer.enregister();
                        if (member.has_kernels()) wait_for_mappings(before, 2);
                        buffer.sum();
                        meet(member, shared, meetings);
                        if (member.rank() != 2) static_cast<void>(buffer.enqueue_sum());
                        meet(member, shared, meetings);
                        if (member.rank() != 2) DEMAND(cudaStreamSynchronize(member.stream()) == 0);
                        DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
                        buffer.give_back();
                        meet(member, shared, meetings);
                      }),
            zeros(3));
}

}  // namespace
