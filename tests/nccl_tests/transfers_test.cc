// What libnccl.so.2 makes of ncclSend and ncclRecv in device memory, where ranks are processes and
// where one thread speaks for all of them: kernels make them where all ranks are on one host, and
// they are right wherever they are made. On the stand-in for CUDA.
#include <array>
#include <fstream>
#include <iterator>

#include "nccl_tests/device_processes.hpp"
#include "unit/topology/files.hpp"

namespace tutti::testing {
namespace {

// Ranks on one host, or as if each were on another.
struct Setting {
  const char* name;
  Variables variables;
  bool apart = true;

  friend void PrintTo(const Setting& setting, std::ostream* to) { *to << setting.name; }
};

const Setting kSettings[] = {
    {"together", {{"TUTTI_TRANSPORT", "auto"}}, false},
    {"together_slots", {{"TUTTI_TRANSPORT", "auto"}, {"NCCL_P2P_DISABLE", "1"}}, false},
    {"apart", {{"TUTTI_TRANSPORT", "tcp"}}},
};

class NcclTransfers : public ::testing::TestWithParam<Setting> {
 protected:
  static std::vector<int> run(int size, const std::function<void(Member&, Shared&)>& work) {
    return run_ranks(size, work, GetParam().variables);
  }
};

INSTANTIATE_TEST_SUITE_P(Hosts, NcclTransfers, ::testing::ValuesIn(kSettings),
                         [](const auto& param) { return std::string(param.param.name); });

// What `from` sends to `to` at place i.
int value_at(int from, int to, std::size_t i) {
  return 10000 * from + 1000 * to + static_cast<int>(i % 997);
}

// Of a transfer between these two: every size is another one, and some are none.
std::size_t count_of(int from, int to, std::size_t count) {
  return count * static_cast<std::size_t>((2 * from + 3 * to) % 5);
}

// Memory for what a rank has to do with each other one, at its place.
struct Mail {
  Mail(const Member& from, std::size_t count)
      : member(from), room(5 * count), size(static_cast<std::size_t>(from.size())) {
    std::vector<int> values(room * size);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = value_at(member.rank(), static_cast<int>(i / room), i % room);
    sent = member.memory(values);
    received = member.memory(std::vector<int>(values.size(), -1));
  }
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;
  ~Mail() {
    DEMAND(cudaFree(sent) == 0);
    DEMAND(cudaFree(received) == 0);
  }
  int* to(int peer) const { return sent + static_cast<std::size_t>(peer) * room; }
  int* from(int peer) const { return received + static_cast<std::size_t>(peer) * room; }

  void forget() const {
    const std::vector<int> none(room * size, -1);
    DEMAND(cudaMemcpy(received, none.data(), none.size() * sizeof(int), 1) == 0);
  }
  // What each peer sent to this rank, and nothing behind it.
  void check(std::size_t count) const {
    for (int peer = 0; peer < member.size(); ++peer) {
      const std::vector<int> got = member.values(from(peer), room);
      const std::size_t end = count_of(peer, member.rank(), count);
      for (std::size_t i = 0; i < room; ++i)
        DEMAND(got[i] == (i < end ? value_at(peer, member.rank(), i) : -1));
    }
  }

  const Member& member;
  std::size_t room;
  std::size_t size;
  int* sent = nullptr;
  int* received = nullptr;
};

// All with all, each with itself as well; halves of what is sent follow each other.
void enqueue_all(const Member& member, const Mail& mail, std::size_t count) {
  DEMAND(ncclGroupStart() == ncclSuccess);
  for (int peer = 0; peer < member.size(); ++peer) {
    const std::size_t sends = count_of(member.rank(), peer, count);
    const std::size_t receives = count_of(peer, member.rank(), count);
    for (const std::size_t half : {0U, 1U}) {
      const std::size_t at = half * (sends / 2);
      DEMAND(ncclSend(mail.to(peer) + at, half == 0 ? sends / 2 : sends - at, ncclInt, peer,
                      member.comm(), member.stream()) == ncclSuccess);
      const std::size_t to = half * (receives / 2);
      DEMAND(ncclRecv(mail.from(peer) + to, half == 0 ? receives / 2 : receives - to, ncclInt, peer,
                      member.comm(), member.stream()) == ncclSuccess);
    }
  }
  DEMAND(ncclGroupEnd() == ncclSuccess);
}

TEST_P(NcclTransfers, OfAnyNumberAndSizeAreOneGroup) {
  for (const int size : {1, 2, 3, 5})
    EXPECT_EQ(run(size,
                  [](Member& member, Shared&) {
                    for (const std::size_t count : {1U, 7U, 1009U, 20021U}) {
                      const Mail mail(member, count);
                      for (int time = 0; time < 3; ++time) enqueue_all(member, mail, count);
                      member.synchronize();
                      mail.check(count);
                    }
                    member.end();
                  }),
              zeros(size))
        << size << " ranks";
}

// Of one rank; its stream has the calls of the group in their order, those of two ranks last.
TEST_P(NcclTransfers, AreMixedWithCollectives) {
  EXPECT_EQ(run(3,
                [](Member& member, Shared&) {
                  const Mail mail(member, 100);
                  int* const sum = member.memory({member.rank() + 1});
                  const int next = (member.rank() + 1) % 3;
                  const int last = (member.rank() + 2) % 3;
                  for (int time = 0; time < 2; ++time) {
                    DEMAND(ncclGroupStart() == ncclSuccess);
                    DEMAND(ncclSend(mail.to(next), 300, ncclInt, next, member.comm(),
                                    member.stream()) == ncclSuccess);
                    DEMAND(ncclAllReduce(sum, sum, 1, ncclInt, ncclSum, member.comm(),
                                         member.stream()) == ncclSuccess);
                    DEMAND(ncclRecv(mail.from(last), 300, ncclInt, last, member.comm(),
                                    member.stream()) == ncclSuccess);
                    DEMAND(ncclGroupEnd() == ncclSuccess);
                  }
                  member.synchronize();
                  DEMAND(member.values(sum, 1)[0] == 18);
                  const std::vector<int> got = member.values(mail.from(last), 300);
                  for (std::size_t i = 0; i < got.size(); ++i)
                    DEMAND(got[i] == value_at(last, member.rank(), i));
                  member.end();
                }),
            zeros(3));
}

// Those of a group that are in host memory are made first: here rank 1 asks for them first. Where
// all are staged both ends have to group them alike.
TEST_P(NcclTransfers, MayBeInHostMemoryAsWell) {
  EXPECT_EQ(run(2,
                [](Member& member, Shared&) {
                  if (GetParam().apart || !member.has_kernels()) return member.end();
                  constexpr std::size_t kCount = 3'000'000;  // more than slots have room for
                  int host[2] = {member.rank() == 0 ? 7 : -1, -1};
                  int* const memory = member.memory(std::vector<int>(kCount, member.rank()));
                  if (member.rank() == 0) {
                    DEMAND(ncclGroupStart() == ncclSuccess);
                    for (int* const sent : {host, memory})
                      DEMAND(ncclSend(sent, sent == host ? 1 : kCount, ncclInt, 1, member.comm(),
                                      member.stream()) == ncclSuccess);
                    DEMAND(ncclGroupEnd() == ncclSuccess);
                  } else {
                    for (int* const received : {host, memory})
                      DEMAND(ncclRecv(received, received == host ? 1 : kCount, ncclInt, 0,
                                      member.comm(), member.stream()) == ncclSuccess);
                  }
                  member.synchronize();
                  DEMAND(host[0] == 7 && host[1] == -1);
                  DEMAND(member.values(memory, kCount) == std::vector<int>(kCount, 0));
                  member.end();
                }),
            zeros(2));
}

// Two ranks; the third makes no call before the collective of all.
TEST_P(NcclTransfers, ConcernTheirTwoRanksAlone) {
  EXPECT_EQ(run(3,
                [](Member& member, Shared& shared) {
                  const Mail mail(member, 1000);
                  for (int time = 0; time < 2; ++time) {
                    if (member.rank() == 0)
                      DEMAND(ncclSend(mail.to(2), 5000, ncclInt, 2, member.comm(),
                                      member.stream()) == ncclSuccess);
                    if (member.rank() == 2)
                      DEMAND(ncclRecv(mail.from(0), 5000, ncclInt, 0, member.comm(),
                                      member.stream()) == ncclSuccess);
                    member.synchronize();
                    ++shared.met;
                    while (shared.met < 3 * (time + 1)) std::this_thread::yield();
                    check_sums(member, 50);
                  }
                  if (member.rank() == 2) {
                    const std::vector<int> got = member.values(mail.from(0), 5000);
                    for (std::size_t i = 0; i < got.size(); ++i)
                      DEMAND(got[i] == value_at(0, 2, i));
                  }
                  member.end();
                }),
            zeros(3));
}

// A launch that fails tells who makes them.
TEST_P(NcclTransfers, AreMadeByKernelsWithinAHost) {
  EXPECT_EQ(run(2,
                [](Member& member, Shared& shared) {
                  const bool by_kernels = member.has_kernels() && !GetParam().apart;
                  const Mail mail(member, 10);
                  check_sums(member, 10);
                  tutti_stand_in_fail("cuLaunchKernel", 719, 0);
                  if (by_kernels) {
                    DEMAND(ncclSend(mail.to(member.rank()), 1, ncclInt, 1 - member.rank(),
                                    member.comm(), member.stream()) != ncclSuccess);
                  } else {
                    enqueue_all(member, mail, 10);
                    member.synchronize();
                    mail.check(10);
                    const bool reduced =
                        ncclAllReduce(mail.sent, mail.sent, 1, ncclInt, ncclSum, member.comm(),
                                      member.stream()) == ncclSuccess;
                    DEMAND(reduced != member.has_kernels());
                  }
                  // Who aborts takes the other's transfers away, if they are still under way there.
                  ++shared.met;
                  while (shared.met < 2) std::this_thread::yield();
                  DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
                }),
            zeros(2));
}

TEST_P(NcclTransfers, ReplayInGraphs) {
  EXPECT_EQ(run(3,
                [](Member& member, Shared&) {
                  constexpr std::size_t kCount = 900;
                  const Mail mail(member, kCount);
                  CUgraph_st* graph = nullptr;
                  CUgraph_st* instance = nullptr;
                  DEMAND(cudaStreamBeginCapture(member.stream(), 0) == 0);
                  enqueue_all(member, mail, kCount);
                  DEMAND(cudaStreamEndCapture(member.stream(), &graph) == 0);
                  DEMAND(cudaGraphInstantiate(&instance, graph, 0) == 0);
                  for (int time = 0; time < 3; ++time) {
                    mail.forget();
                    DEMAND(cudaGraphLaunch(instance, member.stream()) == 0);
                    member.synchronize();
                    mail.check(kCount);
                  }
                  DEMAND(cudaGraphExecDestroy(instance) == 0);
                  DEMAND(cudaGraphDestroy(graph) == 0);
                  member.end();
                }),
            zeros(3));
}

TEST_P(NcclTransfers, MayBeInRegisteredMemory) {
  EXPECT_EQ(
      run(2,
          [](Member& member, Shared&) {
            constexpr std::size_t kCount = 30011;
            const Mail mail(member, kCount);
            void* handle = nullptr;
            DEMAND(ncclCommRegister(member.comm(), mail.sent, mail.room * mail.size * sizeof(int),
                                    &handle) == ncclSuccess);
            for (int time = 0; time < 20; ++time) {
              mail.forget();
              enqueue_all(member, mail, kCount);
              member.synchronize();
              mail.check(kCount);
            }
            DEMAND(ncclCommDeregister(member.comm(), handle) == ncclSuccess);
            enqueue_all(member, mail, kCount);
            member.synchronize();
            mail.check(kCount);
            member.end();
          }),
      zeros(2));
}

// ---- Failures ----

// NCCL leaves it undefined. Who receives hears of it; who has sent may be through by then.
TEST_P(NcclTransfers, OfDifferentSizesAreAnError) {
  for (const std::size_t received : {9999U, 10001U, 0U})
    EXPECT_EQ(run(2,
                  [received](Member& member, Shared& shared) {
                    const Mail mail(member, 5000);
                    if (member.rank() == 0) {
                      DEMAND(ncclSend(mail.to(1), 10000, ncclInt, 1, member.comm(),
                                      member.stream()) == ncclSuccess);
                    } else {
                      DEMAND(ncclRecv(mail.from(0), received, ncclInt, 0, member.comm(),
                                      member.stream()) == ncclSuccess);
                      DEMAND(cudaStreamSynchronize(member.stream()) == 0);
                      ncclResult_t error = ncclSuccess;
                      DEMAND(ncclCommGetAsyncError(member.comm(), &error) == ncclSuccess);
                      DEMAND(error == ncclInvalidUsage);
                      // Nothing was stored behind it.
                      DEMAND(member.values(mail.from(0), mail.room)[received] == -1);
                    }
                    ++shared.met;
                    while (shared.met < 2) std::this_thread::yield();
                    DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
                  }),
              zeros(2))
        << received;
}

TEST_P(NcclTransfers, HearOfALostPeer) {
  const auto codes = run(3, [](Member& member, Shared& shared) {
    const Mail mail(member, 10);
    check_sums(member, 10);
    ++shared.met;
    while (shared.met < 3) std::this_thread::yield();
    if (member.rank() == 1) std::raise(SIGKILL);
    const ncclResult_t enqueued =
        ncclRecv(mail.from(1), 10, ncclInt, 1, member.comm(), member.stream());
    DEMAND(cudaStreamSynchronize(member.stream()) == 0);
    ncclResult_t error = ncclSuccess;
    DEMAND(ncclCommGetAsyncError(member.comm(), &error) == ncclSuccess);
    DEMAND(enqueued != ncclSuccess || error == ncclRemoteError);
    ++shared.met;
    while (shared.met < 5) std::this_thread::yield();
    DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, -SIGKILL, 0}));
}

TEST_P(NcclTransfers, EndWithAnAbort) {
  EXPECT_EQ(
      run(2,
          [](Member& member, Shared& shared) {
            const Mail mail(member, 1000);
            check_sums(member, 10);
            // What one has ended the other may still be ending: nobody aborts that.
            ++shared.met;
            while (shared.met < 2) std::this_thread::yield();
            // Of what rank 0 waits for, rank 1 sends the one half.
            for (int time = 0; time < 2 - member.rank(); ++time)
              DEMAND((member.rank() == 0
                          ? ncclRecv(mail.from(1), 5000, ncclInt, 1, member.comm(), member.stream())
                          : ncclSend(mail.to(0), 5000, ncclInt, 0, member.comm(),
                                     member.stream())) == ncclSuccess);
            if (member.rank() == 1) {
              member.synchronize();
              ++shared.met;
            }
            while (shared.met < 3) std::this_thread::yield();
            DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
            DEMAND(cudaStreamSynchronize(member.stream()) == 0);
          }),
      zeros(2));
}

// ---- What is told ----

std::string said_with(const Variables& variables) {
  const TempDir dir;
  const std::string file = dir.path() + "/said";
  Variables all = variables;
  all.emplace_back("NCCL_DEBUG", "INFO");
  const auto codes = run_ranks(
      1 + 1,
      [](Member& member, Shared&) {
        const Mail mail(member, 10);
        for (int time = 0; time < 3; ++time) enqueue_all(member, mail, 10);
        member.synchronize();
        // Asked first, told last: who leaves early is missed by the peer.
        const bool has_kernels = member.has_kernels();
        member.end();
        if (!has_kernels) std::exit(kSkipped);
      },
      all, file);
  if (codes == std::vector<int>(2, kSkipped)) return "";
  EXPECT_EQ(codes, zeros(2));
  std::ifstream read(file);
  return std::string(std::istreambuf_iterator<char>(read), {});
}

// By each rank once.
TEST_P(NcclTransfers, SayWhereTheyAreStaged) {
  const std::string said = said_with(GetParam().variables);
  // By what was built and asked for, not by what it did.
  const char* const kernels = std::getenv("TUTTI_GPU_KERNELS");
  const bool off = kernels != nullptr && std::string_view(kernels) == "0";
  if (TUTTI_GPU_KERNELS_BUILT == 0 || off) GTEST_SKIP() << "there are no kernels, or they are off";
  ASSERT_FALSE(said.empty()) << "there are kernels, and they were not used";
  constexpr std::string_view kWords = "ncclSend and ncclRecv in device memory are staged";
  int times = 0;
  for (std::size_t at = said.find(kWords); at != std::string::npos; at = said.find(kWords, at + 1))
    ++times;
  EXPECT_EQ(times, GetParam().apart ? 2 : 0) << said;
}

// ---- One thread that speaks for all ranks ----

// Each with a device, a stream and memory: what it sends to each, then what it receives.
struct OneThread {
  static constexpr int kSize = 4;
  static constexpr std::size_t kCount = 3001;
  static constexpr std::size_t kInts = 2 * kSize * kCount;
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  OneThread() {
    DEMAND(ncclCommInitAll(comms.data(), kSize, devices.data()) == ncclSuccess);
    for (int rank = 0; rank < kSize; ++rank) {
      std::vector<int> values(kInts, -1);
      for (std::size_t i = 0; i < kSize * kCount; ++i)
        values[i] = value_at(rank, static_cast<int>(i / kCount), i % kCount);
      DEMAND(cudaSetDevice(devices[at(rank)]) == 0);
      DEMAND(cudaStreamCreateWithFlags(&streams[at(rank)], 1) == 0);
      void* made = nullptr;
      DEMAND(cudaMalloc(&made, kInts * sizeof(int)) == 0);
      DEMAND(cudaMemcpy(made, values.data(), kInts * sizeof(int), 1) == 0);
      memory[at(rank)] = static_cast<int*>(made);
    }
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    for (int rank = 0; rank < kSize; ++rank) {
      DEMAND(ncclCommDestroy(comms[at(rank)]) == ncclSuccess);
      DEMAND(cudaFree(memory[at(rank)]) == 0);
      DEMAND(cudaStreamDestroy(streams[at(rank)]) == 0);
    }
  }

  void exchange(int rank, int peer, cudaStream_t stream) {
    int* const mine = memory[at(rank)] + at(peer) * kCount;
    const ncclComm_t comm = comms[at(rank)];
    DEMAND(ncclSend(mine, kCount, ncclInt, peer, comm, stream) == ncclSuccess);
    DEMAND(ncclRecv(mine + kSize * kCount, kCount, ncclInt, peer, comm, stream) == ncclSuccess);
  }
  void check(int rank) {
    DEMAND(cudaSetDevice(devices[at(rank)]) == 0);
    DEMAND(cudaStreamSynchronize(streams[at(rank)]) == 0);
    std::vector<int> got(kSize * kCount);
    DEMAND(cudaMemcpy(got.data(), memory[at(rank)] + kSize * kCount, got.size() * sizeof(int), 2) ==
           0);
    for (std::size_t i = 0; i < got.size(); ++i)
      DEMAND(got[i] == value_at(static_cast<int>(i / kCount), rank, i % kCount));
  }

  std::array<int, kSize> devices{0, 1, 0, 2};
  std::array<ncclComm_t, kSize> comms{};
  std::array<cudaStream_t, kSize> streams{};
  std::array<int*, kSize> memory{};
};

TEST(NcclTransfersOfOneThread, AreGroupedOverCommunicators) {
  EXPECT_EQ(run_ranks(1,
                      [](Member& member, Shared&) {
                        OneThread all;
                        for (int time = 0; time < 3; ++time) {
                          DEMAND(ncclGroupStart() == ncclSuccess);
                          for (int rank = 0; rank < OneThread::kSize; ++rank)
                            for (int peer = 0; peer < OneThread::kSize; ++peer)
                              all.exchange(rank, peer, all.streams[OneThread::at(rank)]);
                          DEMAND(ncclGroupEnd() == ncclSuccess);
                        }
                        for (int rank = 0; rank < OneThread::kSize; ++rank) all.check(rank);
                        member.end();
                      }),
            zeros(1));
}

// Where one would wait for the other's end for ever; each by itself here, so that nothing does.
TEST(NcclTransfersOfOneThread, AreRefusedToTwoRanksOnOneDefaultStream) {
  EXPECT_EQ(run_ranks(1,
                      [](Member& member, Shared&) {
                        OneThread all;
                        for (const int rank : {0, 2, 0}) {  // both are on device 0
                          DEMAND(ncclGroupStart() == ncclSuccess);
                          all.exchange(rank, rank, nullptr);
                          const bool well = ncclGroupEnd() == ncclSuccess;
                          DEMAND(well == (rank == 0 || !member.has_kernels()));
                        }
                        DEMAND(cudaSetDevice(0) == 0);
                        DEMAND(cudaStreamSynchronize(nullptr) == 0);
                        member.end();
                      }),
            zeros(1));
}

}  // namespace
}  // namespace tutti::testing
