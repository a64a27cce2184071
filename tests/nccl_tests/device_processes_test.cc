// What libnccl.so.2 makes of device memory where ranks are processes, one for each: on the stand-in
// for CUDA, with as many devices as it has, so that some ranks share one.
#include "nccl_tests/device_processes.hpp"

#include <fstream>
#include <iterator>

#include "unit/topology/files.hpp"

namespace tutti::testing {
namespace {

// Empty when there is none.
std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Ranks on one host, or as if each were on another: with sockets or UCX asked for, hosts carry what
// kernels tell each other.
struct Setting {
  const char* name;
  Variables variables;
  bool apart = true;
  bool needs_ucx = false;
  bool direct = false;  // UCX moves the memory of devices by itself

  friend void PrintTo(const Setting& setting, std::ostream* to) { *to << setting.name; }
};

const Variables kUcx = {{"TUTTI_TRANSPORT", "ucx"}, {"UCX_MEM_EVENTS", "no"}};

Variables with(Variables variables, const Variables& more) {
  variables.insert(variables.end(), more.begin(), more.end());
  return variables;
}

const Variables kDirect = with(kUcx, {{"TUTTI_GPU_DIRECT", "on"}, {"CUDA_STAND_IN_RDMA", "flush"}});

// Not over UCX's sockets: where a peer goes, UCX 1.13 may end a process that lives (docs/ucx.md).
const Setting kSettings[] = {
    {"together", {{"TUTTI_TRANSPORT", "auto"}}, false},
    {"apart", {{"TUTTI_TRANSPORT", "tcp"}}},
    {"apart_ucx", kUcx, true, true},
    {"apart_direct", kDirect, true, true, true},
};

// Where UCX is in this build it has the stand-in that knows devices in front of it.
bool has_ucx() { return TUTTI_UCX_STAND_IN != 0; }

bool has_kernels_here() {
  if (TUTTI_GPU_KERNELS_BUILT == 0) return false;
  const char* const kernels = std::getenv("TUTTI_GPU_KERNELS");
  return kernels == nullptr || std::strcmp(kernels, "0") != 0;
}

class NcclDeviceRanks : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (!GetParam().needs_ucx) return;
    if (!has_ucx()) GTEST_SKIP() << "this build has no UCX";
    if (!has_kernels_here()) GTEST_SKIP() << "nothing is carried without kernels";
  }
  static std::vector<int> run(int size, const std::function<void(Member&, Shared&)>& work) {
    return run_ranks(
        size,
        [&work](Member& member, Shared& shared) {
          work(member, shared);
          DEMAND((flushes() > 0) == GetParam().direct || member.size() == 1);
        },
        GetParam().variables);
  }
};

INSTANTIATE_TEST_SUITE_P(Hosts, NcclDeviceRanks, ::testing::ValuesIn(kSettings),
                         [](const auto& param) { return std::string(param.param.name); });

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
  const TempDir dir;
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
        with(GetParam().variables, {{"NCCL_TOPO_FILE", file}, {"NCCL_TOPO_DUMP_FILE", used}}));
    if (codes == std::vector<int>(2, kSkipped))
      GTEST_SKIP() << "this build has no kernels, or they are turned off";
    EXPECT_EQ(codes, zeros(2));
    const std::string text = read_file(used);
    EXPECT_EQ(text.find("vertex gpu") != std::string::npos, all) << text;
    EXPECT_EQ(text.find("h1/n0/gpu1 ") != std::string::npos, all && GetParam().apart) << text;
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

// Calls without end, until one fails: by then data are under way whenever something happens.
void call_until_failure(const Member& member) {
  constexpr std::size_t kCount = 200'000;
  int* const memory = member.memory(filled(member.rank(), kCount));
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess) {
    if (ncclAllReduce(memory, memory, kCount, ncclInt, ncclSum, member.comm(), member.stream()) !=
        ncclSuccess)
      break;
    DEMAND(cudaStreamSynchronize(member.stream()) == 0);
    DEMAND(ncclCommGetAsyncError(member.comm(), &error) == ncclSuccess);
  }
}

TEST_P(NcclDeviceRanks, HearOfAPeerThatIsLostWithinTransfers) {
  for (const int delay_ms : {1, 4, 9, 16}) {
    const auto codes = run(3, [delay_ms](Member& member, Shared& shared) {
      check_sums(member, 10);
      ++shared.met;
      while (shared.met < 3) std::this_thread::yield();
      std::thread death;
      if (member.rank() == 1)
        death = std::thread([delay_ms] {
          std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
          std::raise(SIGKILL);
        });
      call_until_failure(member);
      if (death.joinable()) death.join();
      ++shared.met;
      while (shared.met < 5) std::this_thread::yield();
      DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
    });
    EXPECT_EQ(codes, (std::vector<int>{0, -SIGKILL, 0})) << delay_ms;
  }
}

// What rank 2 has enqueued is under way when it aborts.
TEST_P(NcclDeviceRanks, HearOfAnAbortWithinTransfers) {
  for (const int delay_ms : {1, 7})
    EXPECT_EQ(run(3,
                  [delay_ms](Member& member, Shared& shared) {
                    check_sums(member, 10);
                    ++shared.met;
                    while (shared.met < 3) std::this_thread::yield();
                    if (member.rank() == 2) {
                      constexpr std::size_t kCount = 200'000;
                      int* const memory = member.memory(filled(member.rank(), kCount));
                      for (int time = 0; time < 50; ++time)
                        DEMAND(ncclAllReduce(memory, memory, kCount, ncclInt, ncclSum,
                                             member.comm(), member.stream()) == ncclSuccess);
                      std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
                    } else {
                      call_until_failure(member);
                    }
                    DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
                    DEMAND(cudaStreamSynchronize(member.stream()) == 0);
                  }),
              zeros(3))
        << delay_ms;
}

// ---- What network cards move ----

// What ranks say of how calls are made, with those variables.
std::string said_with(const Variables& variables) {
  const TempDir dir;
  const std::string file = dir.path() + "/said";
  const auto codes = run_ranks(
      2,
      [](Member& member, Shared&) {
        check_sums(member, 5000);
        member.end();
      },
      with(variables, {{"NCCL_DEBUG", "INFO"}}), file);
  EXPECT_EQ(codes, zeros(2));
  return read_file(file);
}

std::string said(const Variables& more) { return said_with(with(kDirect, more)); }

class NcclDirect : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_ucx()) GTEST_SKIP() << "this build has no UCX";
    if (!has_kernels_here()) GTEST_SKIP() << "nothing is carried without kernels";
  }
};

TEST_F(NcclDirect, SaysThatItIsAndWhyNot) {
  const struct {
    Variables more;
    const char* says;
  } kCases[] = {
      {{}, "between hosts it sends from and receives into device memory"},
      {{{"CUDA_STAND_IN_RDMA", "ordered"}}, "it sends from and receives into device memory"},
      {{{"CUDA_STAND_IN_RDMA", "unordered"}},
       "it sends from device memory, receives into page-locked memory (CUDA stand-in"},
      {{{"CUDA_STAND_IN_RDMA", ""}}, "does no GPUDirect RDMA)"},
      {{{"TUTTI_GPU_DIRECT", "off"}}, "page-locked memory (TUTTI_GPU_DIRECT=off)"},
      {{{"TUTTI_GPU_DIRECT", "receive"}},
       "sends from page-locked memory (TUTTI_GPU_DIRECT=receive), receives into device memory"},
      {{{"TUTTI_GPU_DIRECT", ""}, {"NCCL_NET_GDR_LEVEL", "0"}},
       "page-locked memory (NCCL_NET_GDR_LEVEL=LOC)"},
      {{{"STAND_IN_UCX_NO_MAP", "1"}}, "page-locked memory (UCX cannot register"},
      {{{"TUTTI_TRANSPORT", "tcp"}}, "page-locked memory (tcp moves no memory that is lent to it)"},
  };
  for (const auto& each : kCases) {
    const std::string text = said(each.more);
    EXPECT_NE(text.find(each.says), std::string::npos) << each.says << "\n" << text;
  }
}

// Ranks that differ in what their devices let cards do.
TEST_F(NcclDirect, RanksNeedNotBeAlike) {
  const auto codes = run_ranks(
      3,
      [](Member& member, Shared&) {
        for (const std::size_t count : {1U, 1009U, 50021U}) check_sums(member, count);
        check_exchanges(member, 4099);
        DEMAND((flushes() > 0) == (member.rank() == 1));
        member.end();
      },
      with(kDirect, {{"CUDA_STAND_IN_RDMA_BY_RANK", "unordered flush none"}}));
  EXPECT_EQ(codes, zeros(3));
}

// ---- What NCCL's variables forbid ----

// What kernels tell each other goes by sockets then, on one host, too.
TEST(NcclDeviceProcesses, ShareNoMemoryWhereItIsDisabled) {
  if (!has_kernels_here()) GTEST_SKIP() << "nothing is carried without kernels";
  constexpr const char* kCarried = "; between hosts it sends from";
  const Variables neither = {{"TUTTI_TRANSPORT", ""}};
  EXPECT_EQ(said_with(neither).find(kCarried), std::string::npos);
  const std::string text = said_with(with(neither, {{"NCCL_SHM_DISABLE", "1"}}));
  EXPECT_NE(text.find(kCarried), std::string::npos) << text;
}

// Peers map what is registered, and otherwise it stays with slots.
TEST(NcclDeviceProcesses, MapNoMemoryWhereItIsDisabled) {
  if (!has_kernels_here()) GTEST_SKIP() << "nothing is mapped without kernels";
  constexpr std::size_t kCount = 50021;
  for (const bool disabled : {false, true}) {
    const auto codes =
        run_ranks(2,
                  [&](Member& member, Shared&) {
                    int* const memory = member.memory(filled(member.rank(), kCount));
                    void* handle = nullptr;
                    DEMAND(ncclCommRegister(member.comm(), memory, kCount * sizeof(int), &handle) ==
                           ncclSuccess);
                    // As long as it takes, or long enough.
                    for (int look = 0; look < 300; look += disabled ? 1 : 0) {
                      if (tutti_stand_in_is_mapped_elsewhere(memory)) break;
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    }
                    DEMAND(tutti_stand_in_is_mapped_elsewhere(memory) == !disabled);
                    check_sums(member, kCount);
                    DEMAND(ncclCommDeregister(member.comm(), handle) == ncclSuccess);
                    member.end();
                  },
                  {{"TUTTI_TRANSPORT", ""}, {"NCCL_P2P_DISABLE", disabled ? "1" : "0"}});
    EXPECT_EQ(codes, zeros(2)) << (disabled ? "disabled" : "not disabled");
  }
}

// Calls that an algorithm cannot do are done by others.
TEST(NcclDeviceProcesses, AreRightByTheAlgorithmThatIsLeft) {
  for (const char* const algorithm : {"Ring", "^Ring"})
    EXPECT_EQ(run_ranks(3,
                        [](Member& member, Shared&) {
                          for (const std::size_t count : {7U, 5000U}) check_sums(member, count);
                          check_exchanges(member, 100);
                          member.end();
                        },
                        {{"NCCL_ALGO", algorithm}}),
              zeros(3))
        << algorithm;
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
}  // namespace tutti::testing
