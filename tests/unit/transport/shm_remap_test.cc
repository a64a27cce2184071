// shm_remap_test.cc: plain memory that is made shareable where it is: that nothing of it is lost,
// whatever other threads do meanwhile; and that it is not taken for shared once it is not.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "transport/shm/file.hpp"
#include "transport/shm/heap.hpp"
#include "transport/shm/remap.hpp"
#include "unit/transport/remapping.hpp"

namespace tutti::transport {
namespace {

using namespace testing;

// ---- Moving ----

TEST_F(RemapTest, MemoryOfEveryKindKeepsItsContents) {
  constexpr std::size_t kBytes = 5 * kHuge + 12345;
  std::byte* mapped = map_plain(kBytes);
  auto* allocated = static_cast<std::byte*>(std::malloc(kBytes));
  auto* made = new std::byte[300'000];
  std::vector<std::byte> vector(100'000);
  struct {
    std::byte* memory;
    std::size_t bytes;
  } const all[] = {
      {mapped, kBytes}, {allocated, kBytes}, {made, 300'000}, {vector.data(), vector.size()}};
  unsigned seed = 0;
  for (const auto& [memory, bytes] : all) {
    fill(memory, bytes, ++seed);
    EXPECT_FALSE(find_shared(memory, bytes));
    const Status shared = share_in_place(memory, bytes);
    ASSERT_TRUE(shared.ok()) << shared.to_string();
    EXPECT_TRUE(holds(memory, bytes, seed));
    const PeersView peer(memory, bytes);
    ASSERT_NE(peer.memory(), nullptr);
    EXPECT_TRUE(holds(peer.memory(), bytes, seed)) << "the peer sees what is there";
    peer.memory()[bytes / 2] = std::byte{1};
    EXPECT_EQ(memory[bytes / 2], std::byte{1}) << "and what it stores is seen";
    memory[bytes - 1] = std::byte{2};
    EXPECT_EQ(peer.memory()[bytes - 1], std::byte{2});
    const std::size_t before = shm::remapped_bytes();
    EXPECT_TRUE(share_in_place(memory, bytes).ok());
    EXPECT_EQ(shm::remapped_bytes(), before) << "once is enough";
  }
  munmap(mapped, kBytes);
  std::free(allocated);
  delete[] made;
}

TEST_F(RemapTest, HugePagesAreHugeAgain) {
  constexpr std::size_t kBytes = 4 * kHuge;
  std::byte* memory = map_plain(kBytes) + kPage;
  fill(memory, kBytes - kPage);
  ASSERT_TRUE(share_in_place(memory, kBytes - kPage).ok());
  std::ifstream smaps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(memory));
  bool found = false;
  std::size_t kib = 0;
  for (std::string line; std::getline(smaps, line) && kib == 0;) {
    found = found || line.compare(0, begin.size(), begin) == 0;
    if (found && line.compare(0, 15, "ShmemPmdMapped:") == 0) {
      kib = std::stoul(line.substr(15));
      break;
    }
  }
  munmap(memory - kPage, kBytes);
  if (kib == 0) GTEST_SKIP() << "no huge pages for memory files here";
  EXPECT_GE(kib, 2 * kHuge / 1024);
}

TEST_F(RemapTest, BuffersThatShareAPageShareAFile) {
  std::byte* memory = map_plain(8 * kPage);
  fill(memory, 8 * kPage);
  ASSERT_TRUE(share_in_place(memory + 100, 2 * kPage).ok());
  ASSERT_TRUE(share_in_place(memory + 100 + 2 * kPage, 2 * kPage).ok());
  ASSERT_TRUE(share_in_place(memory + 7 * kPage, 10).ok());
  ASSERT_TRUE(share_in_place(memory, 8 * kPage).ok()) << "what is left is added";
  EXPECT_TRUE(find_shared(memory, 8 * kPage));
  EXPECT_TRUE(holds(memory, 8 * kPage));
  munmap(memory, 8 * kPage);
}

// What is below the program break comes back by the break alone, whose thread has waited until the
// table knows: so nobody need ask whether such memory went, and of other memory everybody must.
TEST_F(RemapTest, MemoryOfTheBreakGoesWhenItsOwnerSaysSo) {
  constexpr std::size_t kBytes = 8 * kPage;
  const auto top = [] { return reinterpret_cast<std::uintptr_t>(sbrk(0)); };
  ASSERT_NE(sbrk(static_cast<std::intptr_t>(kPage - top() % kPage + kBytes)), nullptr);
  auto* const memory = reinterpret_cast<std::byte*>(top() - kBytes);
  fill(memory, kBytes);
  ASSERT_TRUE(share_in_place(memory, kBytes).ok());
  EXPECT_TRUE(holds(memory, kBytes));
  EXPECT_TRUE(shm::remapped_of_break(memory, kBytes));
  EXPECT_TRUE(shm::remapped_of_break(memory + 100, 1));
  EXPECT_FALSE(shm::remapped_of_break(memory, kBytes + 1)) << "nobody has looked beyond";
  std::byte* const other = map_plain(kBytes);
  fill(other, kBytes);
  ASSERT_TRUE(share_in_place(other, kBytes).ok());
  EXPECT_FALSE(shm::remapped_of_break(other, kBytes)) << "others may get that address";
  munmap(other, kBytes);
  if (top() != reinterpret_cast<std::uintptr_t>(memory) + kBytes)
    GTEST_SKIP() << "somebody else moved the break, too, which then cannot go back";
  const std::uint64_t before = shm::remap_generation();
  ASSERT_NE(sbrk(-static_cast<std::intptr_t>(kBytes)), nullptr);
  EXPECT_GT(shm::remap_generation(), before) << "all remembered answers are void by now";
  ASSERT_EQ(sbrk(static_cast<std::intptr_t>(kBytes)), memory);
  EXPECT_FALSE(find_shared(memory, kBytes));
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(memory[i], std::byte{0});
  EXPECT_TRUE(share_in_place(memory, kBytes).ok()) << "and it can be shared anew";
  EXPECT_TRUE(find_shared(memory, kBytes));
}

// Whoever stores into what is being moved, or beside it, waits and loses nothing.
TEST_F(RemapTest, StoresOfOtherThreadsAreNotLost) {
  constexpr std::size_t kBuffers = 400;
  constexpr std::size_t kBytes = 3 * kPage + 512;
  auto* memory = static_cast<std::byte*>(std::malloc(kBuffers * kBytes + 64));
  std::memset(memory, 0, kBuffers * kBytes + 64);
  std::atomic<std::size_t> current{0};
  std::atomic<bool> done{false};
  std::vector<std::uint32_t> counted(kBuffers + 1);
  // A word before each buffer, in turn those around the one that is being moved.
  const auto word_before = [&](std::size_t buffer) {
    return reinterpret_cast<volatile std::uint32_t*>(memory + buffer * kBytes);
  };
  std::thread writer([&] {
    while (!done.load()) {
      for (std::size_t b = current.load(), k = 0; k < 2; ++k) {
        ++counted[b + k];
        *word_before(b + k) = *word_before(b + k) + 1;
      }
    }
  });
  for (std::size_t b = 0; b < kBuffers; ++b) {
    current = b;
    EXPECT_TRUE(share_in_place(memory + b * kBytes + 8, kBytes - 8).ok());
  }
  done = true;
  writer.join();
  for (std::size_t b = 0; b <= kBuffers; ++b) ASSERT_EQ(*word_before(b), counted[b]) << b;
  std::free(memory);
}

// Also where there was no page before. The stores come sooner and later while memory is moved.
TEST_F(RemapTest, FirstStoresOfOtherThreadsAreNotLost) {
  constexpr std::size_t kPages = 1024;
  for (int round = 0; round < 60; ++round) {
    std::byte* memory = map_plain(kPages * kPage);
    std::thread writer([&] {
      for (std::size_t p = 0; p < kPages; ++p) {
        *const_cast<volatile std::byte*>(memory + p * kPage + 9) = pattern(p, 3);
        for (int wait = 0; wait < round * 50; ++wait)
          std::atomic_signal_fence(std::memory_order_seq_cst);
      }
    });
    ASSERT_TRUE(share_in_place(memory, kPages * kPage).ok());
    writer.join();
    for (std::size_t p = 0; p < kPages; ++p)
      ASSERT_EQ(memory[p * kPage + 9], pattern(p, 3)) << round << ", page " << p;
    munmap(memory, kPages * kPage);
  }
}

// Nor does a system call fail that stores there for a thread.
TEST_F(RemapTest, StoresOfTheKernelAreNotLost) {
  constexpr std::size_t kPages = 600;
  std::byte* memory = map_plain((kPages + 1) * kPage);
  std::memset(memory, 0, (kPages + 1) * kPage);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::atomic<std::size_t> current{0};
  std::atomic<bool> done{false};
  std::thread reader([&] {
    unsigned char next = 1;
    for (; !done.load(); ++next) {
      std::byte* place = memory + current.load() * kPage + 5;
      ASSERT_EQ(write(ends[1], &next, 1), 1);
      ASSERT_EQ(read(ends[0], place, 1), 1) << std::strerror(errno);
      ASSERT_EQ(*reinterpret_cast<volatile unsigned char*>(place), next);
    }
  });
  for (std::size_t p = 0; p < kPages; ++p) {
    current = p;
    EXPECT_TRUE(share_in_place(memory + p * kPage + 8, kPage - 8).ok());
  }
  done = true;
  reader.join();
  close(ends[0]);
  close(ends[1]);
  munmap(memory, (kPages + 1) * kPage);
}

// ---- What is refused ----

TEST_F(RemapTest, WhatCannotBeMovedIsRefusedAndUntouched) {
  constexpr std::size_t kBytes = 4 * kPage;
  const auto refused = [](const void* memory, std::size_t bytes, const char* why) {
    const Status status = share_in_place(memory, bytes);
    EXPECT_EQ(status.code(), StatusCode::unsupported) << why;
    EXPECT_NE(status.message().find(why), std::string::npos) << status.to_string();
    EXPECT_FALSE(find_shared(memory, bytes)) << why;
  };
  const auto file = shm::make_memory_file(kBytes);
  ASSERT_TRUE(file.ok());
  void* of_file = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file->number(), 0);
  refused(of_file, kBytes, "belongs to a file");
  void* shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  refused(shared, kBytes, "belongs to a file");
  std::byte* read_only = map_plain(kBytes);
  mprotect(read_only, kBytes, PROT_READ);
  refused(read_only, kBytes, "read-only");
  munmap(read_only + kPage, kBytes - kPage);  // others may get it from here on
  mprotect(read_only, kPage, PROT_READ | PROT_WRITE);
  read_only[0] = std::byte{9};
  refused(read_only, 2 * kPage, "not mapped");
  EXPECT_EQ(read_only[0], std::byte{9});
  EXPECT_EQ(share_in_place(nullptr, 5).code(), StatusCode::unsupported);
  EXPECT_EQ(share_in_place(read_only, 0).code(), StatusCode::invalid_argument);
  EXPECT_EQ(share_in_place(read_only, ~std::size_t{0}).code(), StatusCode::invalid_argument);
  munmap(of_file, kBytes);
  munmap(shared, kBytes);
  munmap(read_only, kPage);
}

TEST_F(RemapTest, StacksAreRefused) {
  // Asked for by address: a sanitizer may keep variables elsewhere.
  const auto on_stack = [] {
    pthread_attr_t attributes;
    void* stack = nullptr;
    std::size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &bytes);
    pthread_attr_destroy(&attributes);
    return share_in_place(static_cast<std::byte*>(stack) + bytes - 3 * kPage, kPage);
  };
  EXPECT_NE(on_stack().message().find("stack"), std::string::npos);
  Status of_thread;
  std::thread([&] { of_thread = on_stack(); }).join();
  EXPECT_NE(of_thread.message().find("stack"), std::string::npos) << of_thread.to_string();
}

// A stack that the program made itself looks like any memory.
std::byte* own_stack = nullptr;
Status of_own_stack;
ucontext_t before_own_stack;

TEST_F(RemapTest, TheStackOfTheCallerIsRefusedWhereverItLies) {
  if (kSanitized) GTEST_SKIP() << "sanitizers do not know stacks that a program makes";
  constexpr std::size_t kStack = 64 * kPage;
  own_stack = map_plain(2 * kStack);
  ucontext_t context;
  ASSERT_EQ(getcontext(&context), 0);
  context.uc_stack.ss_sp = own_stack;
  context.uc_stack.ss_size = kStack;
  context.uc_link = &before_own_stack;
  makecontext(
      &context, [] { of_own_stack = share_in_place(own_stack + kStack / 2, kStack); }, 0);
  ASSERT_EQ(swapcontext(&before_own_stack, &context), 0);
  EXPECT_NE(of_own_stack.message().find("stack"), std::string::npos) << of_own_stack.to_string();
  munmap(own_stack, 2 * kStack);
}

TEST_F(RemapTest, WithLockedMemoryAllIsRefused) {
  if (kSanitized) GTEST_SKIP() << "under a sanitizer mlock does nothing";
  EXPECT_EQ(in_child([] {
              std::byte* memory = map_plain(4 * kPage);
              if (mlock(memory, kPage) != 0) return 77;
              if (share_in_place(memory + 2 * kPage, kPage).ok()) return 1;
              munlock(memory, kPage);
              return share_in_place(memory + 2 * kPage, kPage).ok() ? 0 : 2;
            }),
            0);
}

// ---- Going ----

TEST_F(RemapTest, FreedMemoryIsForgottenBeforeItsAddressIsUsedAgain) {
  constexpr std::size_t kBytes = 64 * kPage;
  std::byte* memory = map_plain(kBytes);
  for (unsigned i = 0; i < 200; ++i) {
    fill(memory, kBytes, i);
    ASSERT_TRUE(share_in_place(memory, kBytes).ok()) << i;
    const std::uint64_t generation = shared_generation();
    // All at once, a part, or mapped over.
    if (i % 3 == 0) munmap(memory, kBytes);
    if (i % 3 == 1) munmap(memory + kPage, kPage);
    ASSERT_EQ(map_plain(kBytes, memory, MAP_FIXED), memory);
    ASSERT_NE(shared_generation(), generation);
    ASSERT_FALSE(find_shared(memory, kBytes));
    ASSERT_FALSE(find_shared(memory + kPage, kPage));
    ASSERT_EQ(memory[kBytes / 2], std::byte{}) << "new memory is new";
  }
  munmap(memory, kBytes);
}

// The address may be somebody else's while the thread that unmapped it has not come back yet.
TEST_F(RemapTest, AnAddressThatWasFreedAMomentAgoIsNotShared) {
  constexpr std::size_t kBytes = 16 * kPage;
  std::byte* const place = map_apart(kBytes);
  unsigned together = 0;
  for (unsigned i = 0; i < 100; ++i) {
    place[0] = std::byte{1};
    const Status shared = share_in_place(place, kBytes);
    ASSERT_TRUE(shared.ok()) << i << ": " << shared.to_string();
    const std::uint64_t generation = shared_generation();
    std::atomic<bool> back{false};
    std::thread frees([&] {
      munmap(place, kBytes);
      back = true;
    });
    // Succeeds as soon as the address is free.
    while (map_plain(kBytes, place, MAP_FIXED_NOREPLACE) != place) {
    }
    // As an endpoint asks that remembers an answer, and as one that does not.
    const bool remembered = shm::remap_settled() && shared_generation() == generation;
    const bool found = find_shared(place, kBytes).has_value();
    together += back ? 0 : 1;
    frees.join();
    ASSERT_FALSE(remembered) << i;
    ASSERT_FALSE(found) << i;
  }
  munmap(place, kBytes);
  if (together == 0) GTEST_SKIP() << "the threads never met here";
}

TEST_F(RemapTest, EmptiedMemoryReadsAsZeros) {
  constexpr std::size_t kBytes = 3 * kHuge;
  std::byte* memory = map_plain(kBytes);
  fill(memory, kBytes);
  ASSERT_TRUE(share_in_place(memory, kBytes).ok());
  for (unsigned i = 0; i < 100; ++i) {
    std::byte* part = memory + i * 7 * kPage;
    ASSERT_EQ(madvise(part, 5 * kPage, MADV_DONTNEED), 0);
    for (std::size_t b = 0; b < 5 * kPage; b += 64) ASSERT_EQ(part[b], std::byte{}) << i;
    fill(part, 5 * kPage, i);
    ASSERT_TRUE(holds(part, 5 * kPage, i));
  }
  EXPECT_TRUE(find_shared(memory, kBytes)) << "it is shared all the same";
  const PeersView peer(memory, kBytes);
  EXPECT_TRUE(holds(peer.memory(), 5 * kPage, 0));
  munmap(memory, kBytes);
}

// As realloc() does. The memory behind it lies behind it in the file, too.
TEST_F(RemapTest, MemoryThatMovesAndGrowsIsPrivateAndLeavesItsNeighboursAlone) {
  constexpr std::size_t kBytes = 32 * kPage;
  for (int round = 0; round < 20; ++round) {
    std::byte* const memory = map_plain(3 * kBytes);
    fill(memory, 3 * kBytes, 1);
    ASSERT_TRUE(share_in_place(memory, 3 * kBytes).ok());
    std::byte* const elsewhere = map_plain(2 * kBytes);
    std::byte* const part = memory + kBytes;
    const PeersView behind(part + kBytes, kBytes);
    ASSERT_NE(behind.memory(), nullptr);
    ASSERT_EQ(mremap(part, kBytes, 2 * kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere),
              elsewhere);
    EXPECT_FALSE(find_shared(elsewhere, kPage));
    EXPECT_FALSE(find_shared(part, kPage));
    for (std::size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(elsewhere[i], pattern(kBytes + i, 1));
      ASSERT_EQ(elsewhere[kBytes + i], std::byte{}) << "what it grew by is new";
    }
    fill(elsewhere, 2 * kBytes, 3);
    for (std::size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(memory[i], pattern(i, 1));
      ASSERT_EQ(behind.memory()[i], pattern(2 * kBytes + i, 1));
    }
    memory[5] = std::byte{5};
    EXPECT_EQ(PeersView(memory, kBytes).memory()[5], std::byte{5});
    behind.memory()[7] = std::byte{7};
    EXPECT_EQ(part[kBytes + 7], std::byte{7}) << "who mapped the file maps it still";
    ASSERT_TRUE(share_in_place(elsewhere, 2 * kBytes).ok());
    EXPECT_TRUE(holds(elsewhere, 2 * kBytes, 3));
    munmap(memory, kBytes);
    munmap(part + kBytes, kBytes);
    EXPECT_TRUE(holds(elsewhere, 2 * kBytes, 3));
    munmap(elsewhere, 2 * kBytes);
  }
}

TEST_F(RemapTest, MemoryThatGrowsInItsPlaceCanBeSharedAsAWhole) {
  constexpr std::size_t kBytes = 16 * kPage;
  std::byte* memory = map_plain(2 * kBytes);
  munmap(memory + kBytes, kBytes);
  fill(memory, kBytes);
  ASSERT_TRUE(share_in_place(memory, kBytes).ok());
  if (mremap(memory, kBytes, 2 * kBytes, 0) == MAP_FAILED)
    GTEST_SKIP() << "something else came to lie behind it";
  EXPECT_EQ(memory[2 * kBytes - 1], std::byte{});
  fill(memory, 2 * kBytes, 5);
  EXPECT_FALSE(find_shared(memory, 2 * kBytes)) << "nobody was told yet";
  ASSERT_TRUE(share_in_place(memory, 2 * kBytes).ok());
  const PeersView peer(memory, 2 * kBytes);
  EXPECT_TRUE(holds(peer.memory(), 2 * kBytes, 5));
  munmap(memory, 2 * kBytes);
}

TEST_F(RemapTest, ReallocKeepsContents) {
  for (std::size_t bytes = 1 << 20; bytes < (std::size_t{40} << 20); bytes *= 3) {
    auto* memory = static_cast<std::byte*>(std::malloc(bytes));
    fill(memory, bytes, 7);
    ASSERT_TRUE(share_in_place(memory, bytes).ok());
    memory = static_cast<std::byte*>(std::realloc(memory, 2 * bytes));
    ASSERT_TRUE(holds(memory, bytes, 7));
    fill(memory, 2 * bytes, 8);
    ASSERT_TRUE(share_in_place(memory, 2 * bytes).ok());
    ASSERT_TRUE(holds(memory, 2 * bytes, 8));
    memory = static_cast<std::byte*>(std::realloc(memory, bytes / 2));
    ASSERT_TRUE(holds(memory, bytes / 2, 8));
    std::free(memory);
  }
  malloc_trim(0);
}

// Threads that get, share and free memory at once: nobody sees another's.
TEST_F(RemapTest, ThreadsMayShareAndFreeAtOnce) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (unsigned i = 0; i < 150; ++i) {
        const std::size_t bytes = 20'000 + (i * 7919 + t * 104'729) % 400'000;
        auto* memory = static_cast<std::byte*>(std::calloc(bytes, 1));
        for (std::size_t b = 0; b < bytes; b += 512) ASSERT_EQ(memory[b], std::byte{});
        fill(memory, bytes, t * 1000 + i);
        (void)share_in_place(memory, bytes);
        ASSERT_TRUE(holds(memory, bytes, t * 1000 + i));
        if (i % 3 == 0) memory = static_cast<std::byte*>(std::realloc(memory, bytes + 300'000));
        ASSERT_TRUE(holds(memory, bytes, t * 1000 + i));
        std::free(memory);
      }
    });
  for (auto& thread : threads) thread.join();
}

// ---- Withdrawal ----

TEST_F(RemapTest, WithdrawnMemoryIsOutOfReachOfPeersAndCanBeSharedAnew) {
  constexpr std::size_t kBytes = kHuge + 10'000;
  // Not from malloc: parts of what that gives may lie in a file that an earlier test retired.
  std::byte* memory = map_plain(3 * kBytes);
  fill(memory, 3 * kBytes, 1);
  std::byte* const part = memory + kBytes;
  ASSERT_TRUE(share_in_place(memory, kBytes / 2).ok());
  ASSERT_TRUE(share_in_place(part, kBytes).ok());
  const auto before = find_shared(part, kBytes);
  const PeersView late(part, kBytes);
  ASSERT_NE(late.memory(), nullptr);
  shared_withdraw(part, kBytes);
  std::memset(late.memory(), 0x77, kBytes);
  EXPECT_TRUE(holds(memory, 3 * kBytes, 1)) << "contents stay, whatever the late peer stores";
  EXPECT_TRUE(!find_shared(part, kBytes) && find_shared(memory, kBytes / 2));
  ASSERT_TRUE(share_in_place(part, kBytes).ok());
  EXPECT_NE(find_shared(part, kBytes)->region, before->region);
  std::memset(late.memory(), 0x78, kBytes);
  EXPECT_TRUE(holds(memory, 3 * kBytes, 1));
  munmap(memory, 3 * kBytes);
}

}  // namespace
}  // namespace tutti::transport
