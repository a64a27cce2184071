// sharing_test.cc: what a program may do with plain buffers while Tutti shares them where they lie
// (TUTTI_SHARE_HEAP=1), between processes: results are right, and nobody sees others' memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <vector>

#include "transport/shm/heap.hpp"
#include "transport/shm/remap.hpp"
#include "tutti/communicator.hpp"
#include "unit/runtime/processes.hpp"

namespace tutti {
namespace {

using Body = std::function<bool(Communicator&)>;

// Runs `body` on ranks that are processes; those that `asks` names have TUTTI_SHARE_HEAP=1.
bool on_ranks(int ranks, const std::function<bool(Rank)>& asks, const Body& body) {
  CommunicatorOptions options;
  options.transport = "shm";
  return runtime::testing::on_processes(ranks, options, body, [&](Rank rank) {
    setenv("TUTTI_SHARE_HEAP", asks(rank) ? "1" : "0", 1);
  });
}

bool all_ask(Rank) { return true; }
bool none_asks(Rank) { return false; }

std::int32_t value(Rank rank, std::size_t i, int call) {
  return static_cast<std::int32_t>(i * 31 + static_cast<std::size_t>(rank * 1009 + call * 77));
}

void fill(Communicator& comm, std::int32_t* data, std::size_t count, int call) {
  for (std::size_t i = 0; i < count; ++i) data[i] = value(comm.rank(), i, call);
}

bool is_sum(Communicator& comm, const std::int32_t* data, std::size_t count, int call) {
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t sum = 0;
    for (Rank r = 0; r < comm.size(); ++r) sum += value(r, i, call);
    if (data[i] != sum) return false;
  }
  return true;
}

// One call with new contents; true when the result is right and the input is what it was.
bool reduce(Communicator& comm, std::int32_t* input, std::int32_t* output, std::size_t count,
            int call) {
  fill(comm, input, count, call);
  const Status status = comm.all_reduce(input, output, count, DataType::int32, ReduceOp::sum);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  if (!status.ok() || !is_sum(comm, output, count, call)) return false;
  for (std::size_t i = 0; input != output && i < count; ++i)
    if (input[i] != value(comm.rank(), i, call)) return false;
  return true;
}

class SharingTest : public testing::Test {
 protected:
  void SetUp() override {
    // Asked in a child: the ranks are forked from a process without threads.
    const pid_t child = fork();
    if (child == 0) _exit(transport::can_share_in_place().ok() ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0)
      GTEST_SKIP() << "memory in use cannot be shared here (userfaultfd is not allowed)";
  }
};

bool buffers_of_many_kinds(Communicator& comm) {
  for (const std::size_t count : {20'000U, 100'000U, 700'000U}) {
    std::vector<std::int32_t> vector(count);
    auto* allocated = static_cast<std::int32_t*>(std::malloc(count * sizeof(std::int32_t)));
    auto* made = new std::int32_t[count];
    for (int call = 0; call < 6; ++call) {
      if (!reduce(comm, vector.data(), allocated, count, call)) return false;
      if (!reduce(comm, made, made, count, call)) return false;
      // A part of a buffer, from the middle of a page.
      if (!reduce(comm, allocated + 77, vector.data() + 5, count - 100, call)) return false;
    }
    std::free(allocated);
    delete[] made;
  }
  return true;
}

TEST_F(SharingTest, PlainBuffersAreSharedWhereItIsAskedFor) {
  EXPECT_TRUE(on_ranks(3, all_ask, [](Communicator& comm) {
    return buffers_of_many_kinds(comm) && transport::shm::remapped_bytes() > 0;
  }));
}

TEST_F(SharingTest, NothingIsSharedUnasked) {
  EXPECT_TRUE(on_ranks(2, none_asks, [](Communicator& comm) {
    return buffers_of_many_kinds(comm) && transport::shm::remapped_bytes() == 0;
  }));
}

TEST_F(SharingTest, SomeRanksShareAndSomeDoNot) {
  EXPECT_TRUE(on_ranks(
      4, [](Rank rank) { return rank % 2 == 1; },
      [](Communicator& comm) {
        const bool shares = transport::shm::remapped_bytes() > 0;
        return buffers_of_many_kinds(comm) && !shares &&
               (transport::shm::remapped_bytes() > 0) == (comm.rank() % 2 == 1);
      }));
}

TEST_F(SharingTest, SingleBuffersAreSharedByRegistration) {
  EXPECT_TRUE(on_ranks(2, none_asks, [](Communicator& comm) {
    constexpr std::size_t kCount = 200'000;
    std::vector<std::int32_t> input(kCount), output(kCount);
    bool well = comm.rank() == 1 || register_memory(output.data(), kCount * 4).ok();
    for (int call = 0; call < 5; ++call) {
      well = well && reduce(comm, input.data(), output.data(), kCount, call);
      if (call == 2) well = well && register_memory(input.data(), kCount * 4).ok();
    }
    // Memory that is shareable is registered, too.
    void* allocated = allocate(10'000);
    well = well && register_memory(allocated, 10'000).ok();
    deallocate(allocated);
    return well && register_memory(nullptr, 8).code() == StatusCode::unsupported;
  }));
}

// Memory goes in every way that there is and other memory comes to lie at its address.
TEST_F(SharingTest, NewMemoryAtAnOldAddressIsNotTakenForTheOld) {
  EXPECT_TRUE(on_ranks(2, all_ask, [](Communicator& comm) {
    constexpr std::size_t kCount = 65'536;
    constexpr std::size_t kBytes = kCount * 4;
    const auto map = [](void* place, int flags) {
      return static_cast<std::int32_t*>(
          mmap(place, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0));
    };
    std::int32_t* const place = map(nullptr, 0);
    std::vector<std::int32_t> output(kCount);
    for (int call = 0; call < 120; ++call) {
      if (!reduce(comm, place, call % 2 == 0 ? place : output.data(), kCount, call)) return false;
      switch (call / 2 % 4) {
        case 0:
          munmap(place, kBytes);
          if (map(place, MAP_FIXED_NOREPLACE) != place) return false;
          break;
        case 1:
          if (map(place, MAP_FIXED) != place) return false;
          break;
        case 2:
          madvise(place, kBytes, MADV_DONTNEED);
          break;
        default:  // stays
          continue;
      }
      for (std::size_t i = 0; i < kCount; ++i)
        if (place[i] != 0) return false;
    }
    return true;
  }));
}

TEST_F(SharingTest, BuffersOfEachCallMayBeNew) {
  EXPECT_TRUE(on_ranks(2, all_ask, [](Communicator& comm) {
    for (int call = 0; call < 200; ++call) {
      const std::size_t count = 20'000 + static_cast<std::size_t>(call % 7) * 30'000;
      auto* memory = static_cast<std::int32_t*>(std::malloc(count * 4));
      if (!reduce(comm, memory, memory, count, call)) return false;
      if (call % 3 == 0) {
        memory = static_cast<std::int32_t*>(std::realloc(memory, count * 8));
        if (!is_sum(comm, memory, count, call) ||
            !reduce(comm, memory + count, memory + count, count, call))
          return false;
      }
      std::free(memory);
    }
    return true;
  }));
}

TEST_F(SharingTest, AForkBetweenCallsHarmsNobody) {
  EXPECT_TRUE(on_ranks(2, all_ask, [](Communicator& comm) {
    constexpr std::size_t kCount = 300'000;
    std::vector<std::int32_t> input(kCount), output(kCount);
    for (int call = 0; call < 8; ++call) {
      if (!reduce(comm, input.data(), output.data(), kCount, call)) return false;
      if (call % 3 != 1) continue;
      const pid_t child = fork();
      if (child == 0) {
        // Long enough for the parent's next calls.
        usleep(20'000);
        const bool well = is_sum(comm, output.data(), kCount, call);
        std::fill(output.begin(), output.end(), -1);
        std::fill(input.begin(), input.end(), -1);
        _exit(well && comm.barrier().code() == StatusCode::invalid_argument ? 0 : 1);
      }
      for (int more = 0; more < 3; ++more)
        if (!reduce(comm, input.data(), output.data(), kCount, 100 * call + more)) return false;
      int status = 1;
      if (waitpid(child, &status, 0) != child || status != 0) return false;
      if (!is_sum(comm, output.data(), kCount, 100 * call + 2)) return false;
    }
    return transport::shm::remapped_bytes() > 0;
  }));
}

TEST_F(SharingTest, AForkInACallIsRefusedWithAnError) {
  EXPECT_TRUE(on_ranks(2, all_ask, [](Communicator& comm) {
    std::vector<std::int32_t> data(100'000);
    if (!reduce(comm, data.data(), data.data(), data.size(), 1)) return false;
    if (comm.rank() == 1) {  // is late for the next call
      usleep(4'000'000);
      _exit(0);
    }
    signal(SIGABRT, [](int) { _exit(0); });
    const auto work = comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::int32,
                                            ReduceOp::sum);
    if (!work.ok()) _exit(2);
    usleep(100'000);  // for the library's own thread to begin it
    fork();
    return false;
  }));
}

}  // namespace
}  // namespace tutti
