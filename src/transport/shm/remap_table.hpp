// remap_table.hpp: what of this process's memory is remapped (remap.hpp), and the thread that keeps
// that true.
//
// Knows pages. Does not know whether it is the only table, nor who asks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "transport/shm/extents.hpp"
#include "transport/shm/file.hpp"
#include "transport/shm/maps.hpp"
#include "transport/shm/pages.hpp"
#include "transport/shm/patience.hpp"
#include "transport/shm/remap.hpp"
#include "transport/shm/watch.hpp"

namespace tutti::transport::shm {

// Where user memory ends on the systems that we know, unless a program asks for more.
inline constexpr std::uintptr_t kAddressEnd = std::uintptr_t{1} << 48;
inline constexpr std::size_t kFilesMost = 64;
// So that a large buffer does not need its memory twice, and holds nobody for long.
inline constexpr std::size_t kMovedAtOnce = std::size_t{64} << 20;

// Why something was refused, in words that need no memory; null: it was not.
using Reason = const char*;

struct File {
  Descriptor file;
  std::uint32_t region = 0;
  std::uint64_t inode = 0;  // as the list of mappings names it: peers' files have others
};

class RemapTable {
 public:
  // `forks`: how many are under way; before_fork() is called after it has grown.
  explicit RemapTable(const std::atomic<int>& forks) : forks_(forks) {}
  Status start();
  Reason add(std::uintptr_t begin, std::uintptr_t end, bool patient);
  std::optional<SharedBlock> find(std::uintptr_t begin, std::uintptr_t end);
  void withdraw(std::uintptr_t begin, std::uintptr_t end);
  bool exists(std::uint32_t region);
  std::size_t bytes();
  bool settled() const { return !in_use_.load(std::memory_order_acquire) || watch_.settled(); }
  bool owns(const MappedRange& range) const;
  bool is_of_break(std::uintptr_t begin, std::uintptr_t end) const {
    return begin >= break_begin_.load(std::memory_order_acquire) &&
           end <= break_end_.load(std::memory_order_acquire);
  }
  bool in_use() const { return in_use_.load(std::memory_order_acquire); }
  std::uint64_t generation() const { return generation_.load(); }
  void before_fork();
  void close_in_child();
  void begin_use() { uses_.fetch_add(1); }
  void end_use() { uses_.fetch_sub(1); }
  [[noreturn]] void serve();

 private:
  // Memory up to `end` that is to be moved, or that grew in place and is in the file already.
  struct Kind {
    std::uintptr_t end = 0;
    bool in_file = false;
    bool of_break = false;
  };

  Reason use_file();
  Reason add_gaps(std::uintptr_t begin, std::uintptr_t end, bool& grew);
  Reason add_gap(std::uintptr_t begin, std::uintptr_t end);
  Reason look_at(std::uintptr_t address, Kind& kind) const;
  void note_break(std::uintptr_t begin, std::uintptr_t end);
  bool is_current(const MappedRange& range) const;
  Reason move(std::uintptr_t begin, std::uintptr_t end);
  Reason keep(std::uintptr_t begin, std::uintptr_t end);
  void take_back(const Extent& extent);
  void take_back_what_is_there(Extent extent);
  bool take_back_whole(const Extent& extent);
  Extent first_left(const Extent& extent) const;
  void hear(const WatchEvent& event);
  void forget(std::uintptr_t begin, std::uintptr_t end);
  void wait_for_calls() const;
  bool find_moved(MappedRange& moved) const;
  void bring_home_moved();
  void empty(const WatchEvent& event);
  void retire(int file);
  void close_unused();
  void drop_pages(const Extent& extent);
  const Descriptor& descriptor(int file) const {
    return files_[static_cast<std::size_t>(file)].file;
  }

  const std::atomic<int>& forks_;
  std::mutex mutex_;
  Watch watch_;
  Hold hold_;
  Extents extents_;
  std::array<File, kFilesMost> files_;
  int current_ = -1;  // the file that takes new memory
  std::uint32_t last_region_ = kFirstRemapRegion;
  Patience patience_;
  std::atomic<bool> in_use_{false};  // something was ever remapped
  std::atomic<std::uint64_t> generation_{0};
  // Around all memory of the program break that was ever moved; nothing else lies in between.
  std::atomic<std::uintptr_t> break_begin_{kAddressEnd};
  std::atomic<std::uintptr_t> break_end_{0};
  std::atomic<int> uses_{0};  // calls that may be using remapped memory
};

}  // namespace tutti::transport::shm
