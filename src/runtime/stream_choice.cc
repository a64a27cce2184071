// stream_choice.cc: see stream_choice.hpp.
#include "runtime/stream_choice.hpp"

#include <algorithm>
#include <bit>

#include "base/assert.hpp"

namespace tutti::runtime {

bool StreamChoice::streams(Collective collective, std::size_t bytes) {
  TUTTI_ASSERT(may_stream(collective, bytes), "shorter results go through the caches");
  if (!kinds_) {
    kinds_ = std::make_unique<Kinds>();
    // Calls try two ways of copying at the same time (pull_choice.hpp), one after the other.
    kinds_->fill(QuickestWay({.worth = {1, kWorthShare},
                              .first_tries = QuickestWay::FirstTries::by_turns,
                              .at_a_time = kTries,
                              .of_mean = kOfMean,
                              .most = kMostOfMean}));
  }
  const auto power = static_cast<std::size_t>(std::bit_width(bytes / kLeastBytes) - 1);
  kind_ = &(*kinds_)[kSizes * static_cast<std::size_t>(collective) + std::min(power, kSizes - 1)];
  way_ = kind_->next();
  bytes_ = bytes;
  return way_ == 1;
}

void StreamChoice::took(std::uint64_t ticks) {
  kind_->took(way_, static_cast<double>(ticks) / static_cast<double>(bytes_));
}

}  // namespace tutti::runtime
