// combining.hpp: memory in which groups of ranks, such as those that take turns on a core, add up
// what they have, all of one call. Each rank lays down its part; who comes last adds up the parts
// of its group and shows the sum, and everybody adds up the sums of the groups.
//
// Who leads is not settled before: whichever way the system gives a core around, it is given away
// once less than it has ranks, and who leads can end the call, and begin the next one, before it
// leaves the core. A group's sum is shown once for all, in a line that crosses to another core
// once.
//
// Source: the combining tree of Yew, Tzeng, Lawrie, Distributing hot-spot addressing in large-scale
// multiprocessors (1987), of one level: whoever comes last to a node goes on with what is there.
//
//   | part, laid ... | sums ...        | what does not fit into those     |
//     of each rank     of each group     of each rank: a part and two sums, of each group or, for
//                                        that alone, copies of them
//
// A part is overwritten in the next call, which a rank begins when it has seen the group's sum. A
// sum has one of kSums places in turn. Two would do, and do for long ones: who leads has the parts
// of all of its group, which have seen all sums of the call before, so that all ranks have begun
// that one, and ended the one before it. Of four, the next one is taken back from other caches
// before it is needed, and nobody reads it then.
//
// Does not know what is added up, or how; never blocks. What is in the memory may be anything: it
// costs a wrong result or a call that does not end, and no access outside of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cache_line.hpp"
#include "runtime/arrival.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime {

// One rank's view of the memory.
//
// Threading  one thread.
class Combining {
 public:
  // Of a rank's part.
  static constexpr std::size_t kBytesMax = std::size_t{128} << 10;
  using Record = std::span<const std::byte, kArrivalBytes>;

  static std::size_t memory_bytes(int ranks);

  // `memory`: the same for all ranks, zeros at first, where lines begin; less than memory_bytes():
  // there is none.
  Combining(std::span<std::byte> memory, Rank rank, int ranks);

  bool possible() const { return seats_ != nullptr; }

  // From now on in groups of so many ranks; 0: there are no calls for now. `near`: by group,
  // whether some of its ranks, other than this one, share this one's core. Requires  possible(), or
  // 0; the same of all ranks; a size that divides `ranks`.
  void group_into(int group_size, std::vector<bool> near);

  // The next call begins. Requires  the same of all ranks, up to kBytesMax.
  void begin(std::size_t bytes);
  std::uint64_t number() const { return number_; }
  int group_size() const { return group_size_; }
  int groups() const { return ranks_ / group_size_; }
  int own_group() const { return rank_ / group_size_; }

  // Whether all others of the group have laid down their parts: then this rank leads, and needs to
  // lay down nothing. Else it is to fill part() and to lay() it, which says whether it leads now.
  bool comes_last() const;
  std::byte* part() const { return place_of(rank_, seat(rank_).part, 0); }
  bool lay(Record record);

  // Of who leads: what the others have laid down, and where the sum goes; then it is shown.
  const std::byte* part_of(Rank rank) const { return place_of(rank, seat(rank).part, 0); }
  Record record_of_part(Rank rank) const { return Record(seat(rank).part.record); }
  std::byte* sum() { return is_short() ? short_sum_ : place_of_sum(own_group()); }
  void show(Record record);
  // Of a sum that is more than a line the group has a copy for itself, where the second of its
  // ranks would have a sum. Lines that other cores fetch meanwhile are not read: some processors
  // take them away from who had them, and two who read the same ones at once wait for each other.
  // Source: two cores of a Sapphire Rapids, 4 ranks, 16 KiB, us: adding up the sums 4.7, and 1.1
  // for who comes second on a core; where who leads reads a copy of his own 2.5 and 2.6; where all
  // of a group do 2.6 and 1.1; the call 11.9, 11.2 and 10.3.
  bool keeps_copy() const { return !is_short() && group_size_ > 1; }
  std::byte* copy_of_sum() const {
    const Rank second = first_of(own_group()) + 1;
    return place_of(second, seat(second).part, 1 + number_ % kLongSums);
  }

  // Whether not all sums were found, and that of which group is found next: the own one's first,
  // since those that share this core have to have it before.
  bool misses_sum() const { return found_ < groups(); }
  int next_group() const { return (own_group() + found_) % groups(); }
  bool next_is_near() const { return near_[static_cast<std::size_t>(next_group())]; }
  // The word that will be number() then.
  const std::atomic<std::uint64_t>* next_word() const {
    return &sum_slot(next_group(), number_).number;
  }
  // Whether it is there. Requires  misses_sum().
  bool find_next();
  int found() const { return found_; }

  // Of a group whose sum was found.
  const std::byte* sum_of(int group) const { return place_of_sum(group); }
  Record record_of_sum(int group) const { return Record(sum_slot(group, number_).record); }

  // For people: whether its sum is there.
  bool has_sum(int group) const {
    return sum_slot(group, number_).number.load(std::memory_order_acquire) == number_;
  }
  // Whether the rank has laid down its part, unless it leads.
  bool has_laid(Rank rank) const {
    return seat(rank).part.number.load(std::memory_order_acquire) == number_;
  }

 private:
  static constexpr std::size_t kShortBytes =
      base::kLineBytes - sizeof(std::uint64_t) - kArrivalBytes;
  static constexpr std::size_t kSums = 4;
  static constexpr std::size_t kLongSums = 2;
  // So that what fetches neighbouring lines on its own leaves them to who writes them next.
  static constexpr std::size_t kApart = 256;
  // Of long data, whose places begin in other sets of a cache each.
  static constexpr std::size_t kLongStride = kBytesMax + base::kLineBytes;

  struct alignas(base::kLineBytes) Slot {
    std::atomic<std::uint64_t> number;  // of the call
    std::byte record[kArrivalBytes];
    std::byte data[kShortBytes];  // if it fits
  };
  static_assert(sizeof(Slot) == base::kLineBytes);
  struct alignas(base::kLineBytes) Count {
    std::atomic<std::uint32_t> value;
  };
  struct Seat {
    Slot part;
    Count laid;  // parts of the group, in the seat of its first rank
  };
  struct alignas(kApart) Sum {
    Slot slot;
  };
  using Sums = Sum[kSums];  // of the group that begins with a rank

  Seat& seat(Rank rank) const { return seats_[rank]; }
  Rank first_of(int group) const { return group * group_size_; }
  Count& laid() const { return seat(first_of(own_group())).laid; }
  Slot& sum_slot(int group, std::uint64_t number) const {
    return sums_[first_of(group)][number % kSums].slot;
  }
  bool is_short() const { return bytes_ <= kShortBytes; }
  std::byte* place_of_sum(int group) const {
    return place_of(first_of(group), sum_slot(group, number_), 1 + number_ % kLongSums);
  }
  std::byte* place_of(Rank rank, Slot& slot, std::size_t which) const {
    if (is_short()) return slot.data;
    return long_ + (static_cast<std::size_t>(rank) * (1 + kLongSums) + which) * kLongStride;
  }

  Seat* seats_ = nullptr;
  Sums* sums_ = nullptr;  // by rank
  std::byte* long_ = nullptr;
  Rank rank_;
  int ranks_;
  std::uint64_t number_ = 0;
  int group_size_ = 0;
  std::vector<bool> near_;
  int found_ = 0;
  std::size_t bytes_ = 0;
  // What goes beside the number is made here and then stored at once: others look at that line, and
  // would take it away between two stores.
  alignas(base::kLineBytes) std::byte short_sum_[kShortBytes] = {};
};

}  // namespace tutti::runtime
