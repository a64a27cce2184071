// store_choice.hpp: how what is stored goes, found out by doing it all ways now and then: through
// the own caches by a loop of vectors or, what is only copied, by the processor's string
// instruction; or past them, what is stored for another core, into its rank's buffer or a queue.
//
// A store through the caches fetches its line first, which the string instruction need not do.
// Between cores that share a cache these are the quickest ways, and which of the two depends on
// where the line was. Between others they can take several times as long as storing past the
// caches, and a virtual machine may be moved from one to the other at any moment, without being
// told. So each size of store is tried all ways (quickest_way.hpp). Sums through the caches ask for
// the lines that they are going to fill ahead, or not: where another core had them, that halves the
// time of a sum; where what is added is far away, it takes the place of that in the queue. What is
// loaded from another rank's buffer may go through several pages in turn, which lets a processor
// that asks by itself for the lines that follow do so in each of them.
//
// Source: pairs of cores of two EPYC machines, all_gather of 64 KiB (half of it stored by each):
// 0.8 us through the caches on one; 4.6 us through and 1.9 us past them on the other. Of a third,
// calls between buffers that both can reach, by the loop and by the string instruction: all_gather
// of 64 KiB when stored 1.6 us and 0.9, when loaded 1.2 and 1.4. Of that one, when the cores are
// far apart, with lines asked for and without: reduce_scatter of 64 KiB 2.8 us and 2.4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/kernels/kernels.hpp"
#include "runtime/quickest_way.hpp"

namespace tutti::runtime {

class StoreChoice {
 public:
  // Smaller stores always go through the caches, with lines that are taken back in time
  // (transport/fifo/outbox.hpp).
  static constexpr std::size_t kLeastBytes = std::size_t{4} << 10;

  // What is done, and where it is stored: in another rank's buffer (pushed), in a queue (queued),
  // or in the own buffers. These take what lies in them (own) or what another core has put into a
  // queue (fetched; sums of it count as own), or what is in another rank's buffer (loaded). Sums
  // take longer than copies; what is in a queue is read at once, and by another core, which has to
  // fetch it from memory if it was stored past the caches.
  enum class Kind : std::uint8_t {
    pushed_copy,
    queued_copy,
    own_copy,
    fetched_copy,
    loaded_copy,
    pushed_sum,
    queued_sum,
    own_sum,
    loaded_sum
  };

  // Which way the next store of so many bytes goes. What is stored in the own buffers never goes
  // past the caches. Of a sum, what goes by the string instruction is a copy of the own part.
  // Requires  bytes >= kLeastBytes.
  kernels::StoreHint choose(std::size_t bytes, Kind kind);

  // Of the store of the latest choose(): whether it is worth a look at the clock; and how long it
  // took, in any unit.
  bool wants_time() const { return size_->wants_time(); }
  void took(std::uint64_t ticks);

 private:
  static constexpr std::size_t kSizes = 16;  // by powers of two
  static constexpr std::size_t kKinds = 9;
  using Sizes = std::array<QuickestWay, kSizes>;

  static Sizes sizes_of(Kind kind);
  static kernels::StoreHint hint_of(std::size_t way, Kind kind);
  static std::array<Sizes, kKinds> all_sizes();

  std::array<Sizes, kKinds> ways_ = all_sizes();  // by kind
  QuickestWay* size_ = nullptr;                   // of the latest choice
  std::size_t way_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::runtime
