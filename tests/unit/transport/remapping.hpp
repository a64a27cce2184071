// remapping.hpp: memory and looks at it, for tests of memory that is shared where it lies.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "transport/shm/file.hpp"
#include "transport/shm/heap.hpp"
#include "transport/shm/sparse.hpp"

namespace tutti::transport::testing {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kHuge = std::size_t{2} << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

inline std::byte pattern(std::size_t i, unsigned seed = 0) {
  return static_cast<std::byte>((i * 2654435761U >> 7) + seed * 37);
}
inline void fill(void* memory, std::size_t bytes, unsigned seed = 0) {
  for (std::size_t i = 0; i < bytes; ++i) static_cast<std::byte*>(memory)[i] = pattern(i, seed);
}
inline bool holds(const void* memory, std::size_t bytes, unsigned seed = 0) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (static_cast<const std::byte*>(memory)[i] != pattern(i, seed)) return false;
  return true;
}

// Beside what the C library keeps for the thread nothing is shared: such memory is left alone.
inline bool is_beside_thread_data(const std::byte* memory, std::size_t bytes) {
  constexpr std::uintptr_t kMargin = 16 * kPage;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const auto data = reinterpret_cast<std::uintptr_t>(&errno);
  return begin < data + kMargin && data < begin + bytes + kMargin;
}

inline std::byte* map_plain(std::size_t bytes, void* place = nullptr, int flags = 0) {
  for (;;) {
    void* memory =
        mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* mapped = static_cast<std::byte*>(memory);
    if (place != nullptr || !is_beside_thread_data(mapped, bytes)) return mapped;
  }
}

// Where the kernel puts nothing that may lie anywhere: it fills the highest room that is left, and
// there is much above. The address stays free when it is freed, whatever other threads map (a
// sanitizer does for threads that end).
inline std::byte* map_apart(std::size_t bytes) {
  constexpr std::size_t kRoom = std::size_t{16} << 30;
  std::byte* const room = map_plain(kRoom, nullptr, MAP_NORESERVE);
  if (room == nullptr) return nullptr;
  munmap(room, kRoom);
  return map_plain(bytes, room, MAP_FIXED_NOREPLACE);
}

// What a peer that got the file maps of it.
class PeersView {
 public:
  PeersView(const void* memory, std::size_t bytes) {
    const auto block = find_shared(memory, bytes);
    if (!block) return;
    file_.emplace(shm::Descriptor(dup(block->file)), block->bytes);
    offset_ = static_cast<std::uint64_t>(static_cast<const std::byte*>(memory) - block->base);
    memory_ = file_->at(offset_, bytes);
  }
  std::byte* memory() const { return memory_; }

 private:
  std::optional<shm::SparseFile> file_;
  std::uint64_t offset_ = 0;
  std::byte* memory_ = nullptr;
};

class RemapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Status possible = can_share_in_place(); !possible.ok())
      GTEST_SKIP() << possible.to_string();
  }
};

// Runs `body` in a child, for what would spoil this process. Requires  no lock that `body` needs.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

}  // namespace tutti::transport::testing
