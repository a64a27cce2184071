// Device memory of cuMemCreate that ranks in processes of one host register with libnccl.so.2: its
// peers map it part by part, whoever made it and in however many pieces; what they cannot have goes
// through slots, for a reason that is told; and nothing of it is left behind.
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nccl_tests/registered_buffers.hpp"
#include "transport/cuda/loader.hpp"
#include "transport/cuda/mapping.hpp"
#include "unit/topology/files.hpp"

namespace {

using namespace tutti::testing;
namespace cuda = tutti::transport::cuda;

constexpr std::size_t kPart = 64 << 10;
constexpr std::size_t kParts = 4;  // for kAt and kCount numbers

// What this program needs of them.
const cuda::MappingFunctions& mapping() {
  static const cuda::MappingFunctions found = [] {
    cuda::MappingFunctions f = {};
    cuda::Loader load(dlopen("libcuda.so.1", RTLD_NOW));
    load(f.cuMemAddressReserve, "cuMemAddressReserve");
    load(f.cuMemAddressFree, "cuMemAddressFree");
    load(f.cuMemCreate, "cuMemCreate");
    load(f.cuMemRelease, "cuMemRelease");
    load(f.cuMemMap, "cuMemMap");
    load(f.cuMemUnmap, "cuMemUnmap");
    load(f.cuMemSetAccess, "cuMemSetAccess");
    DEMAND(load.missing().empty());
    return f;
  }();
  return found;
}

// Addresses, with objects mapped into them side by side, as PyTorch's expandable segments are.
class Segment {
 public:
  Segment(const Member& member, int handle_types, std::size_t parts = kParts,
          std::size_t part_bytes = kPart)
      : ordinal_(member.rank() % kDevices), types_(handle_types), part_bytes_(part_bytes) {
    bytes_ = parts * part_bytes;
    DEMAND(mapping().cuMemAddressReserve(&begin_, bytes_, 0, 0, 0) == 0);
    for (std::size_t part = 0; part < parts; ++part) map(part);
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment() {
    for (std::size_t at = 0; at < bytes_; at += part_bytes_)
      DEMAND(mapping().cuMemUnmap(begin_ + at, part_bytes_) == 0);
    DEMAND(mapping().cuMemAddressFree(begin_, bytes_) == 0);
  }

  void* memory() const { return reinterpret_cast<void*>(begin_); }
  // Until no other process has a part of it.
  void wait_until_ours_alone() const {
    wait_until([&] { return is_ours_alone(); });
  }
  // Other memory at the same addresses.
  void renew(std::size_t part) {
    DEMAND(mapping().cuMemUnmap(begin_ + part * part_bytes_, part_bytes_) == 0);
    map(part);
  }

 private:
  bool is_ours_alone() const {
    for (std::size_t at = 0; at < bytes_; at += part_bytes_)
      if (tutti_stand_in_is_mapped_elsewhere(reinterpret_cast<void*>(begin_ + at))) return false;
    return true;
  }
  void map(std::size_t part) {
    cuda::ObjectProperties wanted;
    wanted.handle_types = types_;
    wanted.location.id = ordinal_;
    cuda::MemoryObject object = 0;
    DEMAND(mapping().cuMemCreate(&object, part_bytes_, &wanted, 0) == 0);
    const cuda::DevicePointer at = begin_ + part * part_bytes_;
    DEMAND(mapping().cuMemMap(at, part_bytes_, 0, object, 0) == 0);
    DEMAND(mapping().cuMemRelease(object) == 0);
    const cuda::MemoryAccess access{{cuda::kLocationDevice, ordinal_}, cuda::kAccessBoth};
    DEMAND(mapping().cuMemSetAccess(at, part_bytes_, &access, 1) == 0);
  }

  const int ordinal_;
  const int types_;
  const std::size_t part_bytes_;
  std::size_t bytes_ = 0;
  cuda::DevicePointer begin_ = 0;
};

// What a process has and could lose.
struct Left {
  std::size_t objects;
  std::size_t reservations;
  std::size_t files;  // and what else has a descriptor

  friend bool operator==(const Left&, const Left&) = default;
};

Left what_is_left() {
  TuttiStandInCounts counts{};
  tutti_stand_in_count(&counts);
  const auto files = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  return {counts.objects, counts.reservations, static_cast<std::size_t>(files)};
}

// `made` is called when the memory is there, and is not registered yet.
void expect_spanning_sums(Member& member, Shared& shared, int types,
                          const std::function<void()>& made = {}, int times = 3) {
  if (!member.has_kernels()) return member.end();
  int meetings = 0;
  std::optional<Left> before;  // once all that the library needs for itself is there
  for (int time = 0; time < times; ++time) {
    {
      const Segment segment(member, types);
      Buffer buffer(member, segment.memory());
      if (made) made();
      buffer.sum();
      meet(member, shared, meetings);
      buffer.enregister();
      wait_until([&] { return what_is_left().objects == kParts * (1 + peers_of(member)); });
      for (int call = 0; call < 3; ++call) buffer.sum();
      meet(member, shared, meetings);
      buffer.deregister();
      wait_until([&] { return what_is_left().objects == kParts; });
      buffer.sum();
      segment.wait_until_ours_alone();
      meet(member, shared, meetings);
    }
    wait_until([] { return what_is_left().objects == 0 && what_is_left().reservations == 0; });
    if (!before) before = what_is_left();
    DEMAND(what_is_left() == *before);
    meet(member, shared, meetings);
  }
  member.end();
}

TEST(NcclMapped, BuffersAcrossPartsAreMapped) {
  for (const int size : {2, 3})
    EXPECT_EQ(run_ranks(size,
                        [](Member& member, Shared& shared) {
                          expect_spanning_sums(member, shared, cuda::kByDescriptor);
                        }),
              zeros(size))
        << size;
}

TEST(NcclMapped, AFabricsHandlesDo) {
  for (const int types : {cuda::kByFabric, cuda::kByFabric | cuda::kByDescriptor})
    EXPECT_EQ(
        run_ranks(
            2, [=](Member& member, Shared& shared) { expect_spanning_sums(member, shared, types); },
            {{"CUDA_STAND_IN_FABRIC", "1"}}),
        zeros(2))
        << types;
}

// Which needs no service of the fabric's: that is closed here behind the memory's making.
TEST(NcclMapped, ADescriptorIsGivenWhereBothCouldBe) {
  EXPECT_EQ(run_ranks(2,
                      [](Member& member, Shared& shared) {
                        expect_spanning_sums(
                            member, shared, cuda::kByFabric | cuda::kByDescriptor,
                            [] { ::unsetenv("CUDA_STAND_IN_FABRIC"); }, 1);
                      },
                      {{"CUDA_STAND_IN_FABRIC", "1"}}),
            zeros(2));
}

// What is at an address now is what is reduced, and not what was there.
TEST(NcclMapped, PartsMayBeRenewedAtTheirAddress) {
  EXPECT_EQ(run_ranks(2,
                      [](Member& member, Shared& shared) {
                        int meetings = 0;
                        {
                          Segment segment(member, cuda::kByDescriptor);
                          Buffer buffer(member, segment.memory());
                          for (std::size_t time = 0; time < 8; ++time) {
                            buffer.enregister();
                            for (int call = 0; call < 4; ++call) buffer.sum();
                            meet(member, shared, meetings);
                            buffer.deregister();
                            segment.renew(time % kParts);
                          }
                        }
                        meet(member, shared, meetings);
                        member.end();
                      }),
            zeros(2));
}

// Only some ranks' memory is registered, of different kinds, and inputs are of another kind than
// outputs.
TEST(NcclMapped, KindsOfMemoryMeet) {
  EXPECT_EQ(
      run_ranks(3,
                [](Member& member, Shared& shared) {
                  int meetings = 0;
                  for (int who = 0; who < 8; ++who) {
                    void* whole = nullptr;
                    DEMAND(cudaMalloc(&whole, (kAt + kCount) * sizeof(int)) == 0);
                    const Segment segment(member, cuda::kByDescriptor);
                    const bool mine = (who >> member.rank() & 1) != 0;
                    Buffer first(member, mine ? segment.memory() : whole);
                    Buffer second(member, mine ? whole : segment.memory());
                    first.enregister();
                    if (mine) second.enregister();
                    for (int time = 0; time < 10; ++time) first.sum();
                    for (int time = 0; time < 10; ++time) {
                      first.fill();
                      DEMAND(ncclAllReduce(first.numbers, second.numbers, kCount, ncclInt, ncclSum,
                                           member.comm(), member.stream()) == ncclSuccess);
                      member.synchronize();
                      second.expect_sum();
                    }
                    first.deregister();
                    if (mine) second.deregister();
                    meet(member, shared, meetings);
                    DEMAND(cudaFree(whole) == 0);
                  }
                  member.end();
                }),
      zeros(3));
}

TEST(NcclMapped, SeveralCommunicatorsHaveItAtOnce) {
  EXPECT_EQ(run_ranks(2,
                      [](Member& member, Shared& shared) {
                        int meetings = 0;
                        ncclComm_t other = nullptr;
                        DEMAND(ncclCommSplit(member.comm(), 0, -member.rank(), &other, nullptr) ==
                               ncclSuccess);
                        {
                          const Segment segment(member, cuda::kByDescriptor);
                          Buffer buffer(member, segment.memory());
                          void* handle = nullptr;
                          buffer.enregister();
                          DEMAND(ncclCommRegister(other, buffer.numbers, kCount * sizeof(int),
                                                  &handle) == ncclSuccess);
                          for (int time = 0; time < 5; ++time) {
                            buffer.sum();
                            buffer.fill();
                            DEMAND(ncclAllReduce(buffer.numbers, buffer.numbers, kCount, ncclInt,
                                                 ncclSum, other, member.stream()) == ncclSuccess);
                            member.synchronize();
                            buffer.expect_sum();
                          }
                          meet(member, shared, meetings);
                          buffer.deregister();
                          DEMAND(ncclCommDeregister(other, handle) == ncclSuccess);
                          meet(member, shared, meetings);
                        }
                        wait_until([] {
                          return what_is_left().objects == 0 && what_is_left().reservations == 0;
                        });
                        meet(member, shared, meetings);
                        DEMAND(ncclCommDestroy(other) == ncclSuccess);
                        member.end();
                      }),
            zeros(2));
}

// What ncclMemAlloc gives can be had by other processes; and as before where drivers cannot.
TEST(NcclMapped, MemoryOfTheLibraryIsMapped) {
  for (const char* const cannot : {"0", "1"})
    EXPECT_EQ(run_ranks(2,
                        [&](Member& member, Shared& shared) {
                          int meetings = 0;
                          const std::size_t objects = what_is_left().objects;
                          Buffer buffer(member);
                          const bool maps = *cannot == '0';
                          DEMAND(what_is_left().objects == objects + (maps ? 1 : 0));
                          buffer.sum();
                          buffer.enregister();
                          for (int time = 0; time < 5; ++time) buffer.sum();
                          meet(member, shared, meetings);
                          buffer.deregister();
                          buffer.give_back();
                          meet(member, shared, meetings);
                          wait_until([&] { return what_is_left().objects == objects; });
                          meet(member, shared, meetings);
                          member.end();
                        },
                        {{"CUDA_STAND_IN_NO_MAPPING", cannot}}),
              zeros(2))
        << cannot;
}

// ---- What stays with slots ----

// The reasons that are told, by rank 0.
std::string told_of(int types, int fails = 0, const Variables& variables = {}) {
  const TempDir dir;
  const std::string told = dir.path() + "/told";
  const auto work = [&](Member& member, Shared& shared) {
    int meetings = 0;
    DEMAND(member.rank() != 0 || std::freopen(told.c_str(), "w", stderr) != nullptr);
    {
      const Segment segment(member, types);
      Buffer buffer(member, segment.memory());
      for (int time = 0; time < 2; ++time) {
        if (fails != 0 && member.rank() == 0)
          tutti_stand_in_fail("cuMemExportToShareableHandle", fails, 0);
        buffer.enregister();
        for (int call = 0; call < 10; ++call) buffer.sum();
        meet(member, shared, meetings);
        buffer.deregister();
      }
    }
    meet(member, shared, meetings);
    const bool has_kernels = member.has_kernels();
    member.end();
    std::fflush(stderr);
    if (!has_kernels) std::exit(kSkipped);
  };
  Variables all = variables;
  all.emplace_back("NCCL_DEBUG", "INFO");
  const auto codes = run_ranks(2, work, all);
  if (codes == std::vector<int>(2, kSkipped)) return "";
  EXPECT_EQ(codes, zeros(2));
  std::ifstream file(told);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int times_in(const std::string& text, const std::string& what) {
  int times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++times;
  return times;
}

TEST(NcclMapped, WhatHasNoHandleTypeStaysWithSlots) {
  const std::string told = told_of(0);
  if (told.empty()) GTEST_SKIP() << "there are no kernels";
  EXPECT_EQ(times_in(told, "registered memory goes through slots"), 1) << told;
  EXPECT_EQ(times_in(told, "only where it was made with a handle type"), 1) << told;
}

TEST(NcclMapped, WhatCannotBeExportedStaysWithSlots) {
  const std::string told = told_of(cuda::kByDescriptor, cuda::kNotSupported);
  if (told.empty()) GTEST_SKIP() << "there are no kernels";
  EXPECT_GE(times_in(told,
                     "registered memory goes through slots: rank 0: "
                     "cuMemExportToShareableHandle: CUDA_ERROR_NOT_SUPPORTED"),
            1)
      << told;
}

TEST(NcclMapped, ADriverWithoutItSaysSo) {
  const std::string told = told_of(cuda::kByDescriptor, 0, {{"CUDA_STAND_IN_NO_MAPPING", "1"}});
  if (told.empty()) GTEST_SKIP() << "there are no kernels";
  EXPECT_EQ(times_in(told, "maps no memory part by part"), 1) << told;
}

// ---- When somebody is gone ----

// Killed at some moment while parts are under way: others go on through slots, or with an error,
// and give back what is theirs.
TEST(NcclMapped, APeerIsKilledWhilePartsAreUnderWay) {
  for (int delay_us = 0; delay_us <= 2000; delay_us += 250) {
    const auto codes = run_ranks(3, [=](Member& member, Shared& shared) {
      int meetings = 0;
      {
        const Segment segment(member, cuda::kByDescriptor, 64);
        Buffer buffer(member, segment.memory());
        meet(member, shared, meetings);
        buffer.enregister();
        if (member.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
          std::raise(SIGKILL);
        }
        static_cast<void>(buffer.enqueue_sum());
        DEMAND(cudaStreamSynchronize(member.stream()) == 0);
        buffer.deregister();
        segment.wait_until_ours_alone();
        ++shared.met;
        while (shared.met < 5) std::this_thread::yield();  // an abort would be heard of, too
        DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
      }
    });
    EXPECT_EQ(codes, (std::vector<int>{0, -SIGKILL, 0})) << delay_us;
  }
}

TEST(NcclMapped, ARankAbortsWhilePartsAreUnderWay) {
  for (int delay_us = 0; delay_us <= 2000; delay_us += 250)
    EXPECT_EQ(run_ranks(3,
                        [=](Member& member, Shared& shared) {
                          int meetings = 0;
                          {
                            const Segment segment(member, cuda::kByDescriptor, 64);
                            Buffer buffer(member, segment.memory());
                            meet(member, shared, meetings);
                            buffer.enregister();
                            std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
                            if (member.rank() != 2) static_cast<void>(buffer.enqueue_sum());
                            if (member.rank() != 2)
                              DEMAND(cudaStreamSynchronize(member.stream()) == 0);
                            DEMAND(ncclCommAbort(member.comm()) == ncclSuccess);
                            segment.wait_until_ours_alone();
                          }
                          meet(member, shared, meetings);
                        }),
              zeros(3))
        << delay_us;
}

}  // namespace
