// plan_choice.hpp: by which of its plans a call is made, agreed by all ranks before each call
// without asking.
//
// A call may have plans between buffers that peers can address and plans through queues
// (Plan::plain), of either kind one or a few, of which nobody knows which is the quickest today
// (quickest_way.hpp). Which kind of memory it is, is known only once addresses have been exchanged,
// and how long a call takes only when it is over, but before it begins all ranks must make the same
// steps. Programs call again and again alike: so rank 0 says, when it begins a call, how the next
// one of the kind is made, by what the latest ones have met and have taken.
//
// It says so in words that all ranks see, one for each kind: from which call on, how, and how
// before it; only where that changes, so that a word stays in all caches. No rank leaves such a
// call before all have begun it, so that a rank which begins the next one finds what was said of
// it, and rank 0 is at most one call ahead, and has said no more than what comes after it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "collectives/footprint.hpp"
#include "collectives/plan.hpp"
#include "runtime/quickest_way.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime {

class PlanChoice {
 public:
  // Of calls by what they do and by powers of two of their bytes.
  static constexpr std::size_t kSizes = 48;
  static constexpr std::size_t kKinds = collectives::kBegunByAll.size() * kSizes;
  static constexpr std::size_t kWords = kKinds;
  // Calls by a plan for plain memory before those are asked again whose memory it was.
  static constexpr int kTrusted = 64;
  // A plan is tried for as many calls as have so many bytes. The first ones find other memory in
  // the caches than they need, or none of what they need; and ranks of a core may lead in turn, so
  // that every second call takes longer. Long calls find little in the caches anyway, and a program
  // makes few of them: by 16 MiB, a rank of 8 tried for 96 of its first calls of 1 MiB. Source: two
  // cores of a Sapphire Rapids, plain all_reduce for 0.3 to 0.5 s, by 16 MiB and by 4, us: 8 ranks
  // 256 KiB 433 and 406, 512 KiB 963 and 875, 1 MiB 1780 and 1391, or 2172 and 2140 when the host
  // was busy; 4 ranks 256 KiB 148 and 130, 128 KiB the same.
  static constexpr std::size_t kBytesOfTry = std::size_t{4} << 20;
  static constexpr std::size_t kLeastCallsOfTry = 2;
  static constexpr std::size_t kMostCallsOfTry = 64;
  static constexpr int calls_of_try(std::size_t bytes) {
    return static_cast<int>(std::clamp(kBytesOfTry / std::max<std::size_t>(bytes, 1),
                                       kLeastCallsOfTry, kMostCallsOfTry));
  }
  // Of the time by the first plan, what another one may take to be chosen: times of ranks that
  // share cores vary.
  static constexpr double kWorthShare = 0.9;
  static constexpr double kOfMean = 1.0 / 16;
  static constexpr double kMostOfMean = 1.25;

  // One of a call's plans.
  struct Choice {
    bool plain = false;      // of those for plain memory
    std::size_t number = 0;  // among them
    friend bool operator==(const Choice&, const Choice&) = default;
  };

  // The plans that a call has, the same on all ranks. Requires  1 to QuickestWay::kMostWays of
  // either kind.
  struct Plans {
    std::size_t usual = 1;
    std::size_t plain = 1;
    std::uint64_t hash = 0;  // of them all
  };

  // `words`: kWords of them, zeros at first, the same for all ranks; none: nothing can be agreed.
  PlanChoice(std::span<std::atomic<std::uint64_t>> words, bool leads)
      : words_(words), leads_(leads) {}

  // By which plan the call is made that begins at `now`, a time in any unit, which only matters on
  // rank 0, and only where there are several plans of a kind; else it may be 0.
  // Requires  every rank begins the same calls, and leaves none before all have begun it
  // (collectives::kBegunByAll).
  Choice begin(Collective collective, std::size_t bytes, const Plans& plans, std::uint64_t now) {
    foretell(collective, bytes, plans);
    return begin_foretold(now);
  }

  // What begin() would give; and begin() of the call that was foretold last. `plans` are kept.
  Choice foretell(Collective collective, std::size_t bytes, const Plans& plans);
  Choice begin_foretold(std::uint64_t now);
  bool has_several_foretold() const {
    return foretold_.plans.usual > 1 || foretold_.plans.plain > 1;
  }

  // Of the call that begin() began, which exchanged addresses: whether this rank's memory, or any
  // that it met, is such that peers cannot address it.
  void met(bool own, bool any);

  // Of one by a plan for plain memory, in which only one's own is known. That of others is asked
  // after again from time to time.
  void met_by_plain_plan(bool own);

  std::size_t memory_bytes() const {
    return times_.size() * (sizeof(*times_.begin()) + collectives::kNodeBytes);
  }

 private:
  struct Kind {
    std::uint64_t calls = 0;
    bool met = false;        // memory that peers cannot address
    bool is_others = false;  // and none of this rank's
    int trusted = 0;         // calls since others were asked
  };
  // Of the plans of one list, for one kind of memory.
  struct Times {
    QuickestWay ways;
    std::size_t latest = QuickestWay::kMostWays;  // plan, and what its call took
    double latest_time = 0;
  };
  using Key = std::pair<std::uint64_t, bool>;  // Plans::hash, Choice::plain
  static constexpr std::size_t kTimesKept = 256;

  static std::size_t kind_of(Collective collective, std::size_t bytes);
  static constexpr int kBits = 4;  // of a choice in a word
  static_assert(QuickestWay::kMostWays <= std::size_t{1} << (kBits - 1));
  // Of all calls from number `from` on `now`, of those before it `before`.
  static std::uint64_t said_of(std::uint64_t from, const Choice& now, const Choice& before) {
    return from << 2 * kBits | bits_of(before) << kBits | bits_of(now);
  }
  static std::uint64_t bits_of(const Choice& choice) {
    return choice.number << 1 | (choice.plain ? 1 : 0);
  }
  Choice heard(std::size_t kind, std::uint64_t call, const Plans& plans) const;
  Times& times_of(const Plans& plans, bool plain, std::size_t bytes);
  void took(std::uint64_t ticks);

  std::span<std::atomic<std::uint64_t>> words_;
  bool leads_;
  std::array<Kind, kKinds> kinds_{};
  std::map<Key, Times> times_;  // of rank 0, where there is a choice
  struct Foretold {
    std::size_t kind = 0;
    std::size_t bytes = 0;
    Choice choice;
    Plans plans;
  };
  Foretold foretold_;
  Foretold latest_;          // call that has begun
  std::uint64_t begun_ = 0;  // when; 0: there was none
};

}  // namespace tutti::runtime
