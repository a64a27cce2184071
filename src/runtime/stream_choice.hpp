// stream_choice.hpp: whether a large call stores its results past the caches, found out by going
// both ways now and then, each rank for itself.
//
// A store through the caches fetches its line first, and writes back later what it pushed out. Past
// them, a call takes less of the memory's time, but who reads the result next finds it in memory
// only. So what a core's own caches hold most of always goes through them, and what no cache holds
// always past them. In between, results of 4 MiB to some 24, it depends on how much of the last
// cache is to be had, which a virtual machine is not told. For sums into the own buffer, which is
// all that a reduce_scatter does, that begins at 1 MiB: the own part, the other rank's and the
// result do not fit the own cache together. What is copied has quicker ways there
// (store_choice.hpp).
//
// Source: two cores of a Xeon of model 207 (2 MiB each of their own), buffers that both can reach,
// results of 16 MiB through the caches and past them: all_reduce 1219 us and 1054, all_gather 1058
// and 869, reduce_scatter 885 and 761, broadcast 606 and 508. Other machines have not been asked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/quickest_way.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime {

class StreamChoice {
 public:
  // Whether there is a choice; shorter results go through the caches.
  static constexpr bool may_stream(Collective collective, std::size_t bytes) {
    return bytes >= (collective == Collective::reduce_scatter ? kLeastBytes : kLongBytes);
  }

  // Whether the next call of that kind and size streams. Requires  may_stream(collective, bytes).
  bool streams(Collective collective, std::size_t bytes);

  // How long the call of the latest streams() took, in any unit.
  void took(std::uint64_t ticks);

 private:
  static constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
  static constexpr std::size_t kLongBytes = std::size_t{4} << 20;
  // Of the time through the caches that streaming may take to be chosen: some of the result would
  // still be in the caches for who reads it next.
  static constexpr double kWorthShare = 0.95;
  // The first call that goes another way than the one before it finds other memory in the caches.
  static constexpr int kTries = 3;
  // A single long time is somebody else's doing, and so are a few: what other systems do to the
  // last cache and the memory lasts for some calls. Source: far cores of a Zen 5 of a busy host,
  // reduce_scatter of 16 MiB, which one try and a quarter of each time had turned to streaming for
  // a fifth to half of the calls: 456 us (396 to 545 of 8 launches), now 419 (397 to 458 of 9).
  static constexpr double kOfMean = 1.0 / 8;
  static constexpr double kMostOfMean = 1.5;
  static constexpr std::size_t kSizes = 6;  // by powers of two
  using Kinds = std::array<QuickestWay, std::size(kAllCollectives) * kSizes>;

  std::unique_ptr<Kinds> kinds_;  // once needed
  QuickestWay* kind_ = nullptr;   // of the latest call
  std::size_t way_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace tutti::runtime
