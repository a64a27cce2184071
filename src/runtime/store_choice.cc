// store_choice.cc: see store_choice.hpp.
#include "runtime/store_choice.hpp"

#include <algorithm>
#include <bit>

#include "base/assert.hpp"

namespace tutti::runtime {
namespace {

using kernels::StoreHint;
using Kind = StoreChoice::Kind;

// Of the time of the loop through the caches, what other ways may take to be chosen.
constexpr double kPastToBuffers = 0.8;
constexpr double kPastToQueues = 0.4;
constexpr double kByString = 0.95;
// These leave the same in the caches as the loop, so that no more counts.
constexpr double kUnclaimed = 1;
constexpr double kPaged = 1;
constexpr double kSumsToQueuesByString = 0.8;  // as they are read at once, and were read twice here

bool is_own_copy(Kind kind) {
  return kind == Kind::own_copy || kind == Kind::fetched_copy || kind == Kind::loaded_copy;
}
bool is_own_sum(Kind kind) { return kind == Kind::own_sum || kind == Kind::loaded_sum; }
bool is_loaded(Kind kind) { return kind == Kind::loaded_copy || kind == Kind::loaded_sum; }
bool is_queued(Kind kind) { return kind == Kind::queued_copy || kind == Kind::queued_sum; }

}  // namespace

// The loop is the first way.
StoreHint StoreChoice::hint_of(std::size_t way, Kind kind) {
  constexpr std::array kWays = {StoreHint::cached, StoreHint::streaming, StoreHint::string,
                                StoreHint::unclaimed};
  constexpr std::array kOfOwnCopies = {StoreHint::cached, StoreHint::string, StoreHint::paged};
  constexpr std::array kOfOwnSums = {StoreHint::cached, StoreHint::unclaimed, StoreHint::paged};
  if (is_own_sum(kind)) return kOfOwnSums[way];
  return is_own_copy(kind) ? kOfOwnCopies[way] : kWays[way];
}

StoreChoice::Sizes StoreChoice::sizes_of(Kind kind) {
  const double past = is_queued(kind) ? kPastToQueues : kPastToBuffers;
  const double by_string = kind == Kind::queued_sum ? kSumsToQueuesByString : kByString;
  const bool is_sum = kind == Kind::pushed_sum || kind == Kind::queued_sum;
  QuickestWay::Manner manner{.worth = {1, past, by_string, kUnclaimed},
                             .ways = is_sum ? std::size_t{4} : 3};
  const std::size_t own_ways = is_loaded(kind) ? 3 : 2;
  if (is_own_copy(kind)) manner = {.worth = {1, kByString, kPaged}, .ways = own_ways};
  if (is_own_sum(kind)) manner = {.worth = {1, kUnclaimed, kPaged}, .ways = own_ways};
  Sizes sizes;
  sizes.fill(QuickestWay(manner));
  return sizes;
}

auto StoreChoice::all_sizes() -> std::array<Sizes, kKinds> {
  std::array<Sizes, kKinds> all;
  for (std::size_t kind = 0; kind < kKinds; ++kind) all[kind] = sizes_of(static_cast<Kind>(kind));
  return all;
}

StoreHint StoreChoice::choose(std::size_t bytes, Kind kind) {
  TUTTI_ASSERT(bytes >= kLeastBytes, "smaller stores go through the caches");
  const auto power = static_cast<std::size_t>(std::bit_width(bytes / kLeastBytes) - 1);
  size_ = &ways_[static_cast<std::size_t>(kind)][std::min(power, kSizes - 1)];
  way_ = size_->next();
  bytes_ = bytes;
  return hint_of(way_, kind);
}

void StoreChoice::took(std::uint64_t ticks) {
  size_->took(way_, static_cast<double>(ticks) / static_cast<double>(bytes_));
}

}  // namespace tutti::runtime
