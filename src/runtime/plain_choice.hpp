// plain_choice.hpp: whether a call is made by the plan that is best where peers cannot address its
// buffers (Plan::plain), agreed by all ranks before each call without asking.
//
// Other algorithms are quickest through queues than between buffers that all can reach, but which
// kind a call has is known only once addresses have been exchanged, and by then all ranks must make
// the same steps. Programs call again and again with memory of the same kind: so rank 0 says, when
// it begins a call, how the next one of the kind is made, by what the latest one has met.
//
// It says so in words that all ranks see. No rank leaves such a call before all have begun it, so
// that a rank which begins the next one finds what was said of it, and rank 0 is at most one call
// ahead: two words in turn are enough.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::runtime {

class PlainChoice {
 public:
  // Of calls by powers of two of their bytes.
  static constexpr std::size_t kKinds = 48;
  static constexpr std::size_t kWords = 2 * kKinds;
  // Calls by the plan for plain memory before those are asked again whose memory it was.
  static constexpr int kTrusted = 64;

  // `words`: kWords of them, zeros at first, the same for all ranks; none: nothing can be agreed.
  PlainChoice(std::span<std::atomic<std::uint64_t>> words, bool leads)
      : words_(words), leads_(leads) {}

  // Whether the call that begins now is made by that plan.
  // Requires  every rank begins the same calls, and leaves none before all have begun it.
  bool begin(std::size_t bytes) {
    if (words_.size() < kWords) return false;
    kind_ = kind_of(bytes);
    const std::uint64_t call = ++kinds_[kind_].calls;
    const std::uint64_t next = said_of(call + 1, kinds_[kind_].met);
    if (leads_) word(kind_, call + 1).store(next, std::memory_order_release);
    return is_said(kind_, call);
  }

  // What begin() will give, which is then to be called.
  bool foretells(std::size_t bytes) const {
    const std::size_t kind = kind_of(bytes);
    return words_.size() >= kWords && is_said(kind, kinds_[kind].calls + 1);
  }

  // Of the call that begin() began, which exchanged addresses: whether this rank's memory, or any
  // that it met, is such that peers cannot address it.
  void met(bool own, bool any) {
    Kind& kind = kinds_[kind_];
    kind.met = any;
    kind.is_others = any && !own;
    kind.trusted = 0;
  }

  // Of one by the plan for plain memory, in which only one's own is known. That of others is asked
  // after again from time to time.
  void met_by_plain_plan(bool own) {
    Kind& kind = kinds_[kind_];
    kind.met = own || (kind.is_others && ++kind.trusted < kTrusted);
  }

 private:
  struct Kind {
    std::uint64_t calls = 0;
    bool met = false;        // memory that peers cannot address
    bool is_others = false;  // and none of this rank's
    int trusted = 0;         // calls since others were asked
  };

  static std::size_t kind_of(std::size_t bytes) {
    return std::min<std::size_t>(std::bit_width(bytes), kKinds - 1);
  }
  static std::uint64_t said_of(std::uint64_t call, bool plain) {
    return call << 1 | (plain ? 1 : 0);
  }
  std::atomic<std::uint64_t>& word(std::size_t kind, std::uint64_t call) const {
    return words_[2 * kind + call % 2];
  }
  bool is_said(std::size_t kind, std::uint64_t call) const {
    return word(kind, call).load(std::memory_order_acquire) == said_of(call, true);
  }

  std::span<std::atomic<std::uint64_t>> words_;
  bool leads_;
  std::array<Kind, kKinds> kinds_{};
  std::size_t kind_ = 0;  // of the latest call
};

}  // namespace tutti::runtime
