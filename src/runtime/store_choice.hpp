// store_choice.hpp: whether what is stored for another core, into its rank's buffer or into a
// queue, goes through the own caches or past them, found out by doing both now and then.
//
// A store through the caches fetches its line first. Between cores that share a cache that is the
// quickest way. Between others it can take several times as long as storing past the caches, and a
// virtual machine may be moved from one to the other at any moment, without being told. So each
// size of store is tried both ways, the quicker way is kept, and the other one is tried again after
// a while: soon when times have changed, the more rarely the longer they have not.
//
// Source: pairs of cores of two EPYC machines, all_gather of 64 KiB (half of it stored by each):
// 0.8 us through the caches on one; 4.6 us through and 1.9 us past them on the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/kernels/kernels.hpp"

namespace tutti::runtime {

class StoreChoice {
 public:
  // Smaller stores always go through the caches.
  static constexpr std::size_t kLeastBytes = std::size_t{16} << 10;

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
  static constexpr int kFirstTries = 3;      // of either way
  static constexpr std::uint32_t kSoonest = 8;
  static constexpr std::uint32_t kLatest = 512;

  // Of the time through the caches that storing past them may take to be chosen.
  static constexpr double kOfBuffers = 0.8;
  static constexpr double kOfQueues = 0.4;

  struct Size {
    std::array<double, 2> ticks_per_byte{};  // by StoreHint, a mean of the latest
    std::array<int, 2> tries{};
    double worth_share = kOfBuffers;
    double settled = 0;            // mean of the better way when the other one was tried
    std::uint32_t until_next = 0;  // stores, before the other way is tried again
    std::uint32_t pause = kSoonest;
    bool trying = false;

    std::size_t better() const {
      return ticks_per_byte[1] < worth_share * ticks_per_byte[0] ? 1 : 0;
    }
    std::size_t next();
    void wait_again(bool turned);
  };

  std::array<Size, 4 * kSizes> sizes_;
  Size* size_ = nullptr;  // of the latest choice
  std::size_t way_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::runtime
