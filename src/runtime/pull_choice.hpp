// pull_choice.hpp: whether ranks that copy from everybody to everybody store what the others need
// or load what they need themselves, agreed call by call. Where memory can be copied by the system
// only (executor_attached.cc), whether it is, rather than sent through queues.
//
// Which is quicker depends on whether the cores share a cache, which a virtual machine may change
// at any moment. All ranks must do the same, and cannot ask each other first. So one rank leads: it
// times its calls, goes both ways now and then (two_ways.hpp), and says in its record of a call
// what the next one of the same kind does. All have that record when the call is over.
//
// Source: two cores of an EPYC machine, all_gather of 64 KiB between buffers that both can reach:
// 3.5 us when stored and 2.1 when loaded; in another state of the same machine, 2.7 and 4.6.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/arrival.hpp"
#include "runtime/two_ways.hpp"

namespace tutti::runtime {

class PullChoice {
 public:
  // The rank whose end of a call is the end of all that is copied in it. The root of a broadcast is
  // through as soon as queues hold what the others have not read.
  static Rank leader(const Signature& call, int ranks) {
    const bool gives =
        call.collective == Collective::broadcast || call.collective == Collective::scatter;
    if (gives) return (call.root + 1) % ranks;
    return has_root(call.collective) ? call.root : 0;
  }

  // Whether a call loads: what the latest one of its kind said of it; else it stores.
  bool pulls(const Signature& call) const { return agreed_[kind_of(call)]; }

  // What the leader's record of a call said of the next one.
  void heard(const Signature& call, bool next) { agreed_[kind_of(call)] = next; }

  // The leader's part. What its record is to say; heard() is for itself, too.
  bool propose(const Signature& call);
  // How long a call took from when all were there, in any unit.
  void took(const Signature& call, bool pulled, std::uint64_t ticks);

 private:
  // By collective, and by powers of two of a block.
  static constexpr std::size_t kSizes = 48;
  static constexpr std::size_t kKinds = std::size(kAllCollectives) * kSizes;
  static std::size_t kind_of(const Signature& call);

  std::array<bool, kKinds> agreed_{};
  std::unique_ptr<std::array<TwoWays, kKinds>> times_;  // the leader's, once needed
};

}  // namespace tutti::runtime
