// store_choice.hpp: whether what is stored for another core, into its rank's buffer or into a
// queue, goes through the own caches or past them, found out by doing both now and then.
//
// A store through the caches fetches its line first. Between cores that share a cache that is the
// quickest way. Between others it can take several times as long as storing past the caches, and a
// virtual machine may be moved from one to the other at any moment, without being told. So each
// size of store is tried both ways (quickest_way.hpp).
//
// Source: pairs of cores of two EPYC machines, all_gather of 64 KiB (half of it stored by each):
// 0.8 us through the caches on one; 4.6 us through and 1.9 us past them on the other.
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

  // What is stored where. Sums take longer than copies; what is in a queue is read at once, and by
  // another core, which has to fetch it from memory if it was stored past the caches.
  struct Kind {
    bool reduces = false;
    bool queued = false;
  };

  // Which way the next store of so many bytes goes.
  // Requires  bytes >= kLeastBytes.
  kernels::StoreHint choose(std::size_t bytes, Kind kind);

  // How long it took, in any unit; the store is that of the latest choose().
  void took(std::uint64_t ticks);

 private:
  static constexpr std::size_t kSizes = 16;  // by powers of two

  // Of the time through the caches that storing past them may take to be chosen.
  static constexpr double kOfBuffers = 0.8;
  static constexpr double kOfQueues = 0.4;

  using Sizes = std::array<QuickestWay, kSizes>;
  static Sizes sizes(double worth_share) {
    Sizes made;
    made.fill(QuickestWay({.worth_share = worth_share}));
    return made;
  }

  // By Kind: `reduces` counts 1, `queued` 2.
  std::array<Sizes, 4> ways_{sizes(kOfBuffers), sizes(kOfBuffers), sizes(kOfQueues),
                             sizes(kOfQueues)};
  QuickestWay* size_ = nullptr;  // of the latest choice
  std::size_t way_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::runtime
