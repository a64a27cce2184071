// extents.hpp: which memory of this process lies in which file, and where in it.
//
// Memory at an address comes and goes while locks are held under which nobody may allocate (see
// remap.hpp). So the table has a fixed size, and whoever finds it full does without.
//
// Knows numbers only: no memory, no file.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::transport::shm {

// Memory [begin, end) is what lies from `offset` on in file number `file`.
struct Extent {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t offset = 0;
  int file = -1;

  std::size_t bytes() const { return end - begin; }
  std::uint64_t offset_of(std::uintptr_t address) const { return offset + (address - begin); }
  // The same memory, as far as it lies in [from, to).
  Extent part(std::uintptr_t from, std::uintptr_t to) const {
    const std::uintptr_t first = std::max(begin, from);
    return {first, std::min(end, to), offset_of(first), file};
  }
};

// Extents in the order of their addresses; neighbours that continue each other are one.
class Extents {
 public:
  static constexpr std::size_t kMost = 4096;
  static constexpr std::size_t kReserve = 256;  // for extents that are split

  std::size_t size() const { return count_; }
  const Extent& operator[](std::size_t i) const { return all_[i]; }
  bool has_room() const { return count_ + kReserve < kMost; }

  // The first extent that ends behind `address`; null when there is none.
  const Extent* at_or_after(std::uintptr_t address) const {
    const std::size_t i = index_after(address);
    return i < count_ ? &all_[i] : nullptr;
  }

  // False when the table is full. Requires  no extent overlaps it.
  bool insert(const Extent& extent) {
    const std::size_t i = index_after(extent.begin);
    const bool joins_before = i > 0 && continues(all_[i - 1], extent);
    const bool joins_after = i < count_ && continues(extent, all_[i]);
    if (joins_before && joins_after) {
      all_[i - 1].end = all_[i].end;
      close_gap(i);
    } else if (joins_before) {
      all_[i - 1].end = extent.end;
    } else if (joins_after) {
      all_[i].begin = extent.begin;
      all_[i].offset = extent.offset;
    } else {
      if (count_ == kMost) return false;
      open_gap(i);
      all_[i] = extent;
    }
    return true;
  }

  // Removes the first piece of memory in [begin, end); false when there is none left. A table
  // without room for what is left of a split extent forgets the part behind the piece.
  bool take(std::uintptr_t begin, std::uintptr_t end, Extent& piece) {
    const std::size_t i = index_after(begin);
    if (i == count_ || all_[i].begin >= end) return false;
    const Extent whole = all_[i];
    piece = whole.part(begin, end);
    close_gap(i);
    if (whole.begin < piece.begin) insert(whole.part(whole.begin, piece.begin));
    if (piece.end < whole.end) insert(whole.part(piece.end, whole.end));
    return true;
  }

  bool uses(int file) const {
    return std::any_of(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(count_),
                       [&](const Extent& extent) { return extent.file == file; });
  }

 private:
  static bool continues(const Extent& first, const Extent& second) {
    return first.end == second.begin && first.file == second.file &&
           first.offset_of(first.end) == second.offset;
  }
  std::size_t index_after(std::uintptr_t address) const {
    const auto* last = all_.begin() + count_;
    const auto* found =
        std::upper_bound(all_.begin(), last, address,
                         [](std::uintptr_t a, const Extent& extent) { return a < extent.end; });
    return static_cast<std::size_t>(found - all_.begin());
  }
  void open_gap(std::size_t i) {
    std::copy_backward(all_.begin() + i, all_.begin() + count_, all_.begin() + count_ + 1);
    ++count_;
  }
  void close_gap(std::size_t i) {
    std::copy(all_.begin() + i + 1, all_.begin() + count_, all_.begin() + i);
    --count_;
  }

  std::array<Extent, kMost> all_ = {};
  std::size_t count_ = 0;
};

}  // namespace tutti::transport::shm
