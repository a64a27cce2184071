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

  // `words`: kWords of them, zeros at first, the same for all ranks; none: nothing can be agreed.
  PlainChoice(std::span<std::atomic<std::uint64_t>> words, bool leads)
      : words_(words), leads_(leads) {}

  // Whether the call that begins now is made by that plan.
  // Requires  every rank begins the same calls, and leaves none before all have begun it.
  bool begin(std::size_t bytes) {
    if (words_.size() < kWords) return false;
    kind_ = std::min<std::size_t>(std::bit_width(bytes), kKinds - 1);
    const std::uint64_t call = ++calls_[kind_];
    if (leads_) word(call + 1).store(said_of(call + 1, met_[kind_]), std::memory_order_release);
    return word(call).load(std::memory_order_acquire) == said_of(call, true);
  }

  // Whether the call that begin() began met memory that peers cannot address.
  void met(bool plain) { met_[kind_] = plain; }

 private:
  static std::uint64_t said_of(std::uint64_t call, bool plain) {
    return call << 1 | (plain ? 1 : 0);
  }
  std::atomic<std::uint64_t>& word(std::uint64_t call) const {
    return words_[2 * kind_ + call % 2];
  }

  std::span<std::atomic<std::uint64_t>> words_;
  bool leads_;
  std::array<std::uint64_t, kKinds> calls_{};
  std::array<bool, kKinds> met_{};
  std::size_t kind_ = 0;  // of the latest call
};

}  // namespace tutti::runtime
