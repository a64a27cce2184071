// shm_remap_fork_test.cc: forks of a process that shares plain memory where it is: the child gets
// copies, and nobody loses anything.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "transport/shm/heap.hpp"
#include "unit/transport/remapping.hpp"

namespace tutti::transport {
namespace {

using namespace testing;

class RemapForkTest : public RemapTest {};

TEST_F(RemapForkTest, AForkedChildHasACopyOfItsOwn) {
  constexpr std::size_t kBytes = 2 * kHuge + 3 * kPage;
  std::byte* first = map_plain(kBytes);
  auto* second = static_cast<std::byte*>(std::malloc(100'000));
  fill(first, kBytes, 1);
  fill(second, 100'000, 2);
  ASSERT_TRUE(share_in_place(first, kBytes).ok());
  ASSERT_TRUE(share_in_place(second, 100'000).ok());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char go = 0;
    bool good = read(ends[0], &go, 1) == 1;  // the parent has changed its own by then
    good = good && holds(first, kBytes, 1) && holds(second, 100'000, 2);
    good = good && !find_shared(first, kBytes);
    std::memset(first, 0x55, kBytes);
    std::memset(second, 0x55, 100'000);
    // A child may begin anew, but under the thread sanitizer no child may begin a thread.
    if (!kSanitized)
      good = good && share_in_place(second, 100'000).ok() && find_shared(second, 100'000);
    std::free(second);
    munmap(first, kBytes);
    _exit(good ? 0 : 1);
  }
  fill(first, kBytes, 3);
  fill(second, 100'000, 4);
  ASSERT_EQ(write(ends[1], "g", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(holds(first, kBytes, 3));
  EXPECT_TRUE(holds(second, 100'000, 4));
  EXPECT_TRUE(!find_shared(first, kBytes) && share_in_place(first, kBytes).ok());
  EXPECT_TRUE(holds(first, kBytes, 3));
  close(ends[0]);
  close(ends[1]);
  munmap(first, kBytes);
  std::free(second);
}

// In a child the C library writes to the allocator's books before anybody else can do anything.
TEST_F(RemapForkTest, AForkDoesNotReachTheParentsAllocator) {
  if (kSanitized) GTEST_SKIP() << "under a sanitizer fork() holds locks that threads need";
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([] {
        // The first of a thread's memory lies on a page with the books of its arena.
        void* memory = std::calloc(30'000, 1);
        (void)share_in_place(memory, 30'000);  // or another thread is forking just now
        EXPECT_EQ(in_child([] { return 0; }), 0);
        std::free(memory);
      });
    for (auto& thread : threads) thread.join();
  }
}

// While another thread replaces memory between two buffers, which are shared as one piece with it.
TEST_F(RemapForkTest, AForkLosesNothingBesideMemoryThatGoes) {
  if (kSanitized) GTEST_SKIP() << "under a sanitizer fork() holds locks that threads need";
  constexpr std::size_t kPart = 16 * kPage;
  std::byte* const memory = map_plain(3 * kPart);
  fill(memory, kPart, 1);
  fill(memory + 2 * kPart, kPart, 2);
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done.load()) {
      (void)share_in_place(memory, 3 * kPart);
      map_plain(kPart, memory + kPart, MAP_FIXED);
    }
  });
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(in_child([] { return 0; }), 0);
    EXPECT_TRUE(holds(memory, kPart, 1)) << "after fork " << i;
    EXPECT_TRUE(holds(memory + 2 * kPart, kPart, 2)) << "after fork " << i;
  }
  done = true;
  other.join();
  munmap(memory, 3 * kPart);
}

// While others get and free memory, too.
TEST_F(RemapForkTest, ForksAmongThreadsThatShareAndFree) {
  if (kSanitized) GTEST_SKIP() << "under a sanitizer fork() holds locks that threads need";
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; !done.load(); ++i) {
        const std::size_t bytes = 20'000 + (i * 7919 + t * 104'729) % 600'000;
        auto* memory = static_cast<std::byte*>(std::malloc(bytes));
        fill(memory, bytes, t + i);
        (void)share_in_place(memory, bytes);
        ASSERT_TRUE(holds(memory, bytes, t + i));
        std::free(memory);
      }
    });
  std::vector<std::byte> mine(700'000);
  for (unsigned i = 0; i < 60; ++i) {
    fill(mine.data(), mine.size(), i);
    (void)share_in_place(mine.data(), mine.size());
    EXPECT_EQ(in_child([&] {
                const bool good = holds(mine.data(), mine.size(), i);
                std::memset(mine.data(), 0, mine.size());
                return good ? 0 : 1;
              }),
              0);
    ASSERT_TRUE(holds(mine.data(), mine.size(), i));
  }
  done = true;
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti::transport
