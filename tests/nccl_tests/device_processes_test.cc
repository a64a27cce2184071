// What libnccl.so.2 makes of device memory where ranks are processes, one for each: on the stand-in
// for CUDA, with as many devices as it has, so that some ranks share one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl_tests/device_members.hpp"
#include "unit/topology/files.hpp"

namespace tutti::testing {

// Empty when there is none.
inline std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace tutti::testing

namespace {

namespace testing = tutti::testing;
using namespace tutti::testing;

void check_sums(const Member& member, std::size_t count) {
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

void check_exchanges(const Member& member, std::size_t count) {
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

// On one host, and as if each rank were on another: with sockets asked for, hosts carry what
// kernels tell each other.
class NcclDeviceRanks : public ::testing::TestWithParam<const char*> {
 protected:
  static std::vector<int> run(int size, const std::function<void(Member&, Shared&)>& work) {
    return run_ranks(size, work, {{"TUTTI_TRANSPORT", GetParam()}});
  }
};

INSTANTIATE_TEST_SUITE_P(Hosts, NcclDeviceRanks, ::testing::Values("auto", "tcp"),
                         [](const auto& param) {
                           return std::string(param.param) == "tcp" ? "apart" : "together";
                         });

TEST_P(NcclDeviceRanks, AreRightAtAllSizes) {
  for (const int size : {1, 2, 3, 5})
    EXPECT_EQ(run(size,
                  [](Member& member, Shared&) {
                    for (const std::size_t count : {1U, 7U, 1009U, 50021U})
                      check_sums(member, count);
                    for (const std::size_t count : {1U, 13U, 4099U}) check_exchanges(member, count);
                    member.end();
                  }),
              zeros(size))
        << size << " ranks";
}

// A launch that fails tells who makes the calls.
TEST_P(NcclDeviceRanks, HaveKernels) {
  const auto codes = run(3, [](Member& member, Shared&) {
    if (!member.has_kernels()) {
      member.end();
      std::exit(kSkipped);
    }
    int* const memory = member.memory({1});
    tutti_stand_in_fail("cuLaunchKernel", 719, 0);
    DEMAND(ncclAllReduce(memory, memory, 1, ncclInt, ncclSum, member.comm(), member.stream()) !=
           ncclSuccess);
    check_sums(member, 100);
    member.end();
  });
  if (codes == std::vector<int>(3, kSkipped))
    GTEST_SKIP() << "this build has no kernels, or they are turned off";
  EXPECT_EQ(codes, zeros(3));
}

// What kernels do not heed is heeded by staging.
TEST(NcclDeviceProcesses, HaveNoKernelsWhereSettingsAskForMore) {
  const std::pair<const char*, const char*> settings[] = {{"TUTTI_GPU_KERNELS", "0"},
                                                          {"TUTTI_TRANSPORT", "shm"},
                                                          {"TUTTI_CHECKSUMS", "on"},
                                                          {"TUTTI_CHECK", "strict"},
                                                          {"TUTTI_REDUCE_ORDER", "rank_tree"}};
  for (const auto& [name, value] : settings)
    EXPECT_EQ(run_ranks(2,
                        [](Member& member, Shared&) {
                          DEMAND(!member.has_kernels());
                          check_sums(member, 100);
                          member.end();
                        },
                        {{name, value}}),
              zeros(2))
        << name;
}

TEST(NcclDeviceProcesses, LeaveToKernelsWhatCopyEnginesAreAskedFor) {
  EXPECT_EQ(run_ranks(2,
                      [](Member& member, Shared&) {
                        check_exchanges(member, 500);
                        member.end();
                      },
                      {{"TUTTI_GPU_COPY_ENGINES", "1"}}),
            zeros(2));
}

// The file is one of NCCL's; what is used of it is written down.
TEST_P(NcclDeviceRanks, PlanByTheMachineThatIsDescribed) {
  const testing::TempDir dir;
  const auto gpu = [](int bus) {
    return "<pci busid=\"0000:0" + std::to_string(bus) +
           ":00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu "
           "dev=\"0\" sm=\"80\"/></pci>";
  };
  for (const bool all : {true, false}) {
    const std::string file =
        dir.write("machine.xml", "<system version=\"1\"><cpu numaid=\"0\">" + gpu(1) +
                                     (all ? gpu(2) : "") + "</cpu></system>");
    const std::string used = dir.path() + "/used" + (all ? "" : "_not");
    const auto codes = run_ranks(
        2,
        [](Member& member, Shared&) {
          const bool has_kernels = member.has_kernels();
          check_sums(member, 5000);
          member.end();
          if (!has_kernels) std::exit(kSkipped);
        },
        {{"TUTTI_TRANSPORT", GetParam()}, {"NCCL_TOPO_FILE", file}, {"NCCL_TOPO_DUMP_FILE", used}});
    if (codes == std::vector<int>(2, kSkipped))
      GTEST_SKIP() << "this build has no kernels, or they are turned off";
    EXPECT_EQ(codes, zeros(2));
    const std::string text = testing::read_file(used);
    EXPECT_EQ(text.find("vertex gpu") != std::string::npos, all) << text;
    const bool apart = std::string(GetParam()) == "tcp";
    EXPECT_EQ(text.find("h1/n0/gpu1 ") != std::string::npos, all && apart) << text;
  }
}

TEST_P(NcclDeviceRanks, ReplayGraphs) {
  EXPECT_EQ(run(2,
                [](Member& member, Shared&) {
                  int* const memory = member.memory(filled(member.rank(), 300));
                  CUgraph_st* graph = nullptr;
                  CUgraph_st* instance = nullptr;
                  DEMAND(cudaStreamBeginCapture(member.stream(), 0) == 0);
                  DEMAND(ncclAllReduce(memory, memory, 300, ncclInt, ncclSum, member.comm(),
                                       member.stream()) == ncclSuccess);
                  DEMAND(cudaStreamEndCapture(member.stream(), &graph) == 0);
                  DEMAND(cudaGraphInstantiate(&instance, graph, 0) == 0);
                  for (int time = 0; time < 3; ++time)
                    DEMAND(cudaGraphLaunch(instance, member.stream()) == 0);
                  member.synchronize();
                  const std::vector<int> sums = member.values(memory, 300);
                  for (std::size_t i = 0; i < 300; ++i) DEMAND(sums[i] == 4 * sum_at(2, i));
                  DEMAND(cudaGraphExecDestroy(instance) == 0);
                  DEMAND(cudaGraphDestroy(graph) == 0);
                  member.end();
                }),
            zeros(2));
}

// Communicators that come and go: what each had of the devices the next ones get.
TEST_P(NcclDeviceRanks, ComeAndGo) {
  EXPECT_EQ(run(3,
                [](Member& member, Shared&) {
                  std::uint64_t first = 0;
                  std::size_t pieces = 0;
                  for (int time = 0; time < 12; ++time) {
                    if (time == 4) pieces = device_memory();
                    ncclComm_t child = nullptr;
                    DEMAND(ncclCommSplit(member.comm(), 0, -member.rank(), &child, nullptr) ==
                           ncclSuccess);
                    std::uint64_t bytes = 0;
                    DEMAND(ncclCommMemStats(child, ncclStatGpuMemTotal, &bytes) == ncclSuccess);
                    if (time == 0) first = bytes;
                    DEMAND(bytes == first);
                    int* const memory = member.memory(filled(member.rank(), 10));
                    DEMAND(ncclAllReduce(memory, memory, 10, ncclInt, ncclSum, child,
                                         member.stream()) == ncclSuccess);
                    DEMAND(ncclCommDestroy(child) == ncclSuccess);
                    DEMAND(member.values(memory, 10).back() == sum_at(3, 9));
                    DEMAND(cudaFree(memory) == 0);
                  }
                  // Until the next one is made, peers may still use the last one's.
                  DEMAND(device_memory() <= pieces + 8);
                  check_sums(member, 50);
                  member.end();
                }),
            zeros(3));
}

// Of a communicator that a rank has given back, its memory stays as long as a peer may use it.
TEST(NcclDeviceProcesses, MemoryStaysUntilPeersHaveLeft) {
  const auto work = [](Member& member, Shared&) {
    const auto split = [&] {
      ncclComm_t child = nullptr;
      DEMAND(ncclCommSplit(member.comm(), 0, member.rank(), &child, nullptr) == ncclSuccess);
      return child;
    };
    ncclComm_t const first = split();
    const std::size_t before = device_memory();
    if (member.rank() == 0) DEMAND(ncclCommDestroy(first) == ncclSuccess);
    DEMAND(member.rank() != 0 || device_memory() == before);
    ncclComm_t const second = split();
    const std::size_t with_both = device_memory();
    DEMAND((with_both > before) == member.has_kernels());
    if (member.rank() == 1) DEMAND(ncclCommDestroy(first) == ncclSuccess);
    ncclComm_t const third = split();
    DEMAND(device_memory() == with_both);  // the first one's has gone
    DEMAND(ncclCommDestroy(second) == ncclSuccess);
    DEMAND(ncclCommDestroy(third) == ncclSuccess);
    member.end();
  };
  EXPECT_EQ(run_ranks(2, work), zeros(2));
}

// Those who wait for a rank whose process is gone are told, long before the deadline.
TEST_P(NcclDeviceRanks, HearOfALostPeer) {
  const auto codes = run(3, [](Member& member, Shared& shared) {
    check_sums(member, 10);
    ++shared.met;
    while (shared.met < 3) std::this_thread::yield();
    if (member.rank() == 1) std::raise(SIGKILL);
    int* const memory = member.memory(filled(member.rank(), 10));
    const ncclResult_t enqueued =
        ncclAllReduce(memory, memory, 10, ncclInt, ncclSum, member.comm(), member.stream());
    DEMAND(cudaStreamSynchronize(member.stream()) == 0);
    ncclResult_t error = ncclSuccess;
    DEMAND(ncclCommGetAsyncError(member.comm(), &error) == ncclSuccess);
    DEMAND(enqueued != ncclSuccess || error == ncclRemoteError);
    ++shared.met;
    while (shared.met < 5) std::this_thread::yield();  // an abort would be heard of, too
    DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, -SIGKILL, 0}));
}

// An abort of one rank is heard by those that wait for it.
TEST_P(NcclDeviceRanks, HearOfAnAbort) {
  EXPECT_EQ(run(3,
                [](Member& member, Shared& shared) {
                  check_sums(member, 10);
                  int* const memory = member.memory(filled(member.rank(), 10));
                  if (member.rank() != 2)
                    DEMAND(ncclAllReduce(memory, memory, 10, ncclInt, ncclSum, member.comm(),
                                         member.stream()) == ncclSuccess);
                  ++shared.met;
                  while (shared.met < 3) std::this_thread::yield();
                  if (member.rank() == 2) DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
                  DEMAND(cudaStreamSynchronize(member.stream()) == 0);
                  if (member.rank() == 2) return;
                  ncclResult_t error = ncclSuccess;
                  DEMAND(ncclCommGetAsyncError(member.comm(), &error) == ncclSuccess);
                  DEMAND(error != ncclSuccess);
                  DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
                }),
            zeros(3));
}

}  // namespace
