// pull_choice.cc: see pull_choice.hpp.
#include "runtime/pull_choice.hpp"

#include <algorithm>
#include <bit>

namespace tutti::runtime {
namespace {

std::size_t table(CopyWay second) { return second == CopyWay::attached ? 1 : 0; }

// Queues are gone through in circles, and come into the caches, and into memory at all, by being
// used: after other calls, those of the first circle take several times as long as later ones. So
// calls that use them are tried for two circles, of which the second counts (quickest_way.hpp). So
// long is the queue between two ranks (world.cc), about.
constexpr std::size_t kCircleBytes = std::size_t{5} << 18;
constexpr std::size_t kTriesMax = 64;

// Which core had a line last depends on which way the call before went: the first call that stores
// after some that loaded takes longer than the later ones. So the second half of a few counts.
// Of long blocks little is in the caches, and a program makes few such calls.
constexpr int kPulledTries = 4;
constexpr int kLongPulledTries = 2;
constexpr std::size_t kLongBlockBytes = std::size_t{8} << 20;

std::size_t bytes_of(std::size_t power) { return (std::size_t{1} << power) / 2; }  // to twice that

int tries_of(std::size_t power, CopyWay second) {
  const std::size_t bytes = bytes_of(power);
  if (second != CopyWay::attached) return bytes < kLongBlockBytes ? kPulledTries : kLongPulledTries;
  return static_cast<int>(
      std::clamp(2 * kCircleBytes / std::max<std::size_t>(bytes, 1), std::size_t{2}, kTriesMax));
}

// Whether the second way is gone first. Who makes but a few long calls is not to find out what is
// known: where one rank has the data or gets it, half of the copies are for nothing but queues.
// Where all have and get some, both cores are busy either way. Source: two cores of an Emerald
// Rapids, 256 MiB of plain memory by queues and by the system, ms: broadcast 38.3 and 34.8,
// all_gather 41 and 44.
bool begins_otherwise(std::size_t collective, std::size_t power, CopyWay second) {
  const auto which = static_cast<Collective>(collective);
  return second == CopyWay::attached && has_root(which) && !is_reduction(which) &&
         bytes_of(power) >= kLongBlockBytes;
}

}  // namespace

std::size_t PullChoice::kind_of(const Signature& call) {
  const auto power = static_cast<std::size_t>(std::bit_width(call.count * size_of(call.type)));
  return std::min(power, kSizes - 1) + kSizes * static_cast<std::size_t>(call.collective);
}

std::unique_ptr<PullChoice::Kinds> PullChoice::new_times(CopyWay second) {
  auto times = std::make_unique<Kinds>();
  for (std::size_t kind = 0; kind < kKinds; ++kind)
    (*times)[kind] =
        QuickestWay({.row_begins = begins_otherwise(kind / kSizes, kind % kSizes, second) ? 1U : 0U,
                     .at_a_time = tries_of(kind % kSizes, second)});
  return times;
}

void PullChoice::begin(const Signature& call) {
  kind_ = kind_of(call);
  block_bytes_ = call.count * size_of(call.type);
  wants_time_ = !settled_[kind_];
}

CopyWay PullChoice::propose(CopyWay second) {
  std::unique_ptr<Kinds>& times = times_[table(second)];
  if (!times) times = new_times(second);
  QuickestWay& ways = (*times)[kind_];
  const bool stores = ways.next() == 0;
  settled_[kind_] = !ways.wants_time();
  return stores ? CopyWay::stored : second;
}

// One that went a way that says nothing of these two, as buffers are others now, is passed over.
void PullChoice::took(CopyWay way, CopyWay second, std::uint64_t ticks) {
  const std::unique_ptr<Kinds>& times = times_[table(second)];
  const bool says_something =
      second != CopyWay::stored && (way == CopyWay::stored || way == second);
  if (!times || block_bytes_ == 0 || !says_something) return;
  (*times)[kind_].took(way == second ? 1 : 0,
                       static_cast<double>(ticks) / static_cast<double>(block_bytes_));
}

}  // namespace tutti::runtime
