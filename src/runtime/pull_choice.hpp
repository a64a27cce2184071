// pull_choice.hpp: how what is only copied gets from rank to rank, where there are two ways of it,
// agreed call by call: whether ranks that copy from everybody to everybody store what the others
// need or load what they need themselves; and whether plain memory goes through queues or is copied
// by the system (executor_attached.cc).
//
// Which is quicker depends on whether the cores share a cache, which a virtual machine may change
// at any moment. All ranks must do the same, and cannot ask each other first. So one rank leads: it
// times its calls, goes both ways now and then (quickest_way.hpp), and says in its record of a call
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
#include "runtime/quickest_way.hpp"

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

  // Of which call the rest is asked and told, until the next begin().
  void begin(const Signature& call);

  // How it copies: what the latest one of its kind said of it; else it stores.
  CopyWay way() const { return agreed_[kind_]; }

  // What the leader's record of the call said of the next one.
  void heard(CopyWay next) { agreed_[kind_] = next; }

  // Whether the latest call of the kind met memory that peers cannot address; the leader notes it.
  bool met_plain() const { return plain_[kind_]; }
  void met(bool plain) { plain_[kind_] = plain; }

  // The leader's part. What its record is to say; heard() is for itself, too. `second`: what the
  // next call may do instead of storing.
  // Requires  `second` is not stored.
  CopyWay propose(CopyWay second);
  // Whether it is worth a look at the clock how long the call takes, as its own way was proposed.
  bool wants_time() const { return wants_time_; }
  // How long it took from when all were there, in any unit; `second` as it may be for a call
  // between the same buffers.
  void took(CopyWay way, CopyWay second, std::uint64_t ticks);

 private:
  // By collective, by powers of two of a block, and by the second way.
  static constexpr std::size_t kSizes = 48;
  static constexpr std::size_t kKinds = std::size(kAllCollectives) * kSizes;
  using Kinds = std::array<QuickestWay, kKinds>;
  static std::size_t kind_of(const Signature& call);
  static std::unique_ptr<Kinds> new_times(CopyWay second);

  std::array<CopyWay, kKinds> agreed_{};
  std::array<bool, kKinds> plain_{};
  std::array<bool, kKinds> settled_{};  // the latest proposal wants no time
  std::size_t kind_ = 0;                // of the call
  std::uint64_t block_bytes_ = 0;
  bool wants_time_ = true;
  std::array<std::unique_ptr<Kinds>, 2> times_;  // the leader's, once needed
};

}  // namespace tutti::runtime
