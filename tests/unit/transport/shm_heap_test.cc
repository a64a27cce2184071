// shm_heap_test.cc: the heap behind tutti::allocate: what it promises of memory, how allocations
// share regions, and what a forked child may do.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "transport/shm/file.hpp"
#include "transport/shm/heap.hpp"

namespace tutti::transport {
namespace {

bool all_zero(const void* memory, std::size_t bytes) {
  const auto* first = static_cast<const char*>(memory);
  return std::all_of(first, first + bytes, [](char byte) { return byte == 0; });
}

TEST(HeapTest, MemoryIsZeroFilledAndPageAligned) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097},
                                  std::size_t{1} << 20, (std::size_t{2} << 20) + 5}) {
    void* memory = shared_allocate(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0u);
    EXPECT_TRUE(all_zero(memory, bytes));
    std::memset(memory, 1, bytes);
    shared_deallocate(memory);
  }
}

// The kernel's own word on how many KiB of a mapping huge pages hold.
std::size_t kib_in_huge_pages(const void* memory) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(memory));
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.compare(0, begin.size(), begin) == 0) found = true;
    constexpr std::string_view kKey = "ShmemPmdMapped:";
    if (found && line.compare(0, kKey.size(), kKey) == 0)
      return std::stoul(line.substr(kKey.size()));
  }
  return 0;
}

constexpr std::size_t kHuge = std::size_t{2} << 20;

// Asked without the heap: whether memory files can lie in huge pages here.
bool has_huge_pages_for_files() {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  const auto file = shm::make_memory_file(kHuge);
  const auto mapping = shm::map_file(file->number(), kHuge, shm::Pages::when_touched);
  if (!mapping.ok()) return false;
  mapping->base()[0] = std::byte{1};
  return madvise(mapping->base(), kHuge, kCollapse) == 0 && kib_in_huge_pages(mapping->base()) > 0;
}

TEST(HeapTest, BigMemoryLiesInHugePagesWhereTheSystemHasThem) {
  constexpr std::size_t kBytes = 3 * kHuge + 5000;
  auto* memory = static_cast<std::byte*>(shared_allocate(kBytes));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kHuge, 0U);
  EXPECT_TRUE(std::all_of(memory, memory + kBytes, [](std::byte b) { return b == std::byte{}; }));
  std::memset(memory, 1, kBytes);
  const std::size_t kib = kib_in_huge_pages(memory);
  // A peer's mapping, made from the file, begins where huge pages can be, too.
  const auto block = find_shared(memory, kBytes);
  ASSERT_TRUE(block);
  const auto mapped = shm::map_file(block->file, block->bytes, shm::Pages::at_once);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped->base()) % kHuge, 0U);
  EXPECT_EQ(mapped->base()[kBytes - 1], std::byte{1});
  const std::size_t theirs = kib_in_huge_pages(mapped->base());
  shared_deallocate(memory);
  if (!has_huge_pages_for_files()) GTEST_SKIP() << "no huge pages for memory files here";
  EXPECT_EQ(kib, 3 * kHuge / 1024);
  EXPECT_EQ(theirs, kib);
}

TEST(HeapTest, ReusedMemoryIsZeroAgain) {
  void* keeper = shared_allocate(100);
  for (int i = 0; i < 10; ++i) {
    void* memory = shared_allocate(10000);
    ASSERT_TRUE(all_zero(memory, 10000));
    std::memset(memory, 7, 10000);
    shared_deallocate(memory);
  }
  shared_deallocate(keeper);
}

TEST(HeapTest, SmallAllocationsShareRegions) {
  std::vector<void*> all;
  std::set<std::uint32_t> regions;
  std::set<void*> distinct;
  for (int i = 0; i < 1000; ++i) {
    all.push_back(shared_allocate(1000));
    distinct.insert(all.back());
    regions.insert(find_shared(all.back(), 1000)->region);
  }
  EXPECT_EQ(distinct.size(), 1000u);
  EXPECT_LE(regions.size(), 3u);
  for (void* memory : all) shared_deallocate(memory);
}

TEST(HeapTest, HolesAreFilled) {
  void* a = shared_allocate(3 * 4096);
  void* b = shared_allocate(4096);
  shared_deallocate(a);
  void* c = shared_allocate(2 * 4096);
  void* d = shared_allocate(4096);
  EXPECT_EQ(c, a);
  EXPECT_EQ(d, static_cast<char*>(a) + 2 * 4096);
  for (void* memory : {b, c, d}) shared_deallocate(memory);
}

TEST(HeapTest, FindsWhatLiesInARegionEntirely) {
  constexpr std::size_t kBytes = std::size_t{3} << 20;
  auto* memory = static_cast<std::byte*>(shared_allocate(kBytes));
  const auto block = find_shared(memory + 100, kBytes - 100);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->base, memory);
  EXPECT_EQ(block->bytes, kBytes);
  EXPECT_NE(block->region, 0u);
  EXPECT_TRUE(shared_region_exists(block->region));
  EXPECT_FALSE(find_shared(memory + 100, kBytes).has_value());
  EXPECT_FALSE(find_shared(memory - 1, 1).has_value());
  EXPECT_FALSE(find_shared(nullptr, 0).has_value());
  int on_the_stack = 0;
  EXPECT_FALSE(find_shared(&on_the_stack, sizeof on_the_stack).has_value());

  const std::uint64_t generation = shared_generation();
  shared_deallocate(memory);
  EXPECT_NE(shared_generation(), generation);
  EXPECT_FALSE(shared_region_exists(block->region));
  EXPECT_FALSE(find_shared(memory, 1).has_value());
}

TEST(HeapTest, ImpossibleSizesGiveNull) {
  EXPECT_EQ(shared_allocate(~std::size_t{0}), nullptr);
  EXPECT_EQ(shared_allocate(std::size_t{1} << 60), nullptr);
}

TEST(HeapTest, ThreadsMayAllocateAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = static_cast<std::size_t>(1 + (i * 977 + t * 131) % 20000);
        void* memory = shared_allocate(bytes);
        ASSERT_NE(memory, nullptr);
        ASSERT_TRUE(all_zero(memory, bytes));
        std::memset(memory, t + 1, bytes);
        shared_deallocate(memory);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(HeapTest, AForkedChildAllocatesMemoryOfItsOwn) {
  auto* parents = static_cast<char*>(shared_allocate(100));
  parents[0] = 'p';
  const pid_t child = fork();
  if (child == 0) {
    bool good = parents[0] == 'p';
    auto* own = static_cast<char*>(shared_allocate(100));
    good = good && own != nullptr && own != parents;
    std::memset(own, 'c', 100);
    shared_deallocate(parents);  // without effect
    shared_deallocate(own);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(parents[0], 'p');
  auto* next = static_cast<char*>(shared_allocate(100));
  EXPECT_NE(next, parents);
  EXPECT_TRUE(all_zero(next, 100));
  shared_deallocate(next);
  shared_deallocate(parents);
}

}  // namespace
}  // namespace tutti::transport
