// combining.cc: see combining.hpp.
#include "runtime/combining.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "tutti/transport.hpp"

namespace tutti::runtime {

std::size_t Combining::memory_bytes(int ranks) {
  constexpr std::size_t kEach = sizeof(Seat) + sizeof(Sums) + (1 + kLongSums) * kLongStride;
  static_assert(kEach <= kSharedBytesEach);
  return static_cast<std::size_t>(ranks) * kEach + kApart;
}

Combining::Combining(std::span<std::byte> memory, Rank rank, int ranks)
    : rank_(rank), ranks_(ranks) {
  if (memory.size() < memory_bytes(ranks)) return;
  seats_ = reinterpret_cast<Seat*>(memory.data());
  const std::size_t r = static_cast<std::size_t>(ranks);
  const std::size_t seats = (r * sizeof(Seat) + kApart - 1) / kApart * kApart;
  sums_ = reinterpret_cast<Sums*>(memory.data() + seats);
  long_ = memory.data() + seats + r * sizeof(Sums);
}

void Combining::group_into(int group_size, std::vector<bool> near) {
  TUTTI_ASSERT(group_size == 0 || (possible() && ranks_ % group_size == 0),
               "groups are of one size, and have memory");
  group_size_ = group_size;
  near_ = std::move(near);
}

void Combining::begin(std::size_t bytes) {
  TUTTI_ASSERT(bytes <= kBytesMax, "what combines fits the memory for it");
  bytes_ = bytes;
  found_ = 0;
  ++number_;
}

bool Combining::find_next() {
  if (!has_sum(next_group())) return false;
  ++found_;
  return true;
}

bool Combining::comes_last() const {
  const auto others = static_cast<std::uint32_t>(group_size_ - 1);
  return laid().value.load(std::memory_order_acquire) == others;
}

bool Combining::lay(Record record) {
  Slot& slot = seat(rank_).part;
  std::copy(record.begin(), record.end(), slot.record);
  slot.number.store(number_, std::memory_order_relaxed);
  const auto all = static_cast<std::uint32_t>(group_size_);
  return laid().value.fetch_add(1, std::memory_order_acq_rel) + 1 == all;
}

// The count begins anew before the others, who see the sum, can come with their next parts. The
// place of the next sum is taken back from who has seen what was in it.
void Combining::show(Record record) {
  laid().value.store(0, std::memory_order_relaxed);
  Slot& slot = sum_slot(own_group(), number_);
  std::copy(record.begin(), record.end(), slot.record);
  if (is_short()) std::copy_n(short_sum_, kShortBytes, slot.data);
  slot.number.store(number_, std::memory_order_release);
  sum_slot(own_group(), number_ + 1).number.store(0, std::memory_order_relaxed);
}

}  // namespace tutti::runtime
