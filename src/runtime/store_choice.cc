// store_choice.cc: see store_choice.hpp.
#include "runtime/store_choice.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/assert.hpp"

namespace tutti::runtime {
namespace {

constexpr double kOfMean = 0.25;  // that a new time counts for
constexpr double kMost = 2;       // times the mean; more is somebody else's doing
constexpr double kChanged = 1.5;  // times what it was, or a part of it: times have changed

}  // namespace

kernels::StoreHint StoreChoice::choose(std::size_t bytes, Kind kind) {
  TUTTI_ASSERT(bytes >= kLeastBytes, "smaller stores go through the caches");
  const auto power = static_cast<std::size_t>(std::bit_width(bytes / kLeastBytes) - 1);
  const std::size_t table = (kind.reduces ? 1 : 0) + (kind.queued ? 2 : 0);
  size_ = &sizes_[table * kSizes + std::min(power, kSizes - 1)];
  size_->worth_share = kind.queued ? kOfQueues : kOfBuffers;
  way_ = size_->next();
  bytes_ = bytes;
  return static_cast<kernels::StoreHint>(way_);
}

std::size_t StoreChoice::Size::next() {
  for (std::size_t way = 0; way < tries.size(); ++way)
    if (tries[way] < kFirstTries) return way;
  if (!trying && until_next > 0) {
    --until_next;
    return better();
  }
  trying = true;
  return 1 - better();
}

void StoreChoice::took(std::uint64_t ticks) {
  Size& s = *size_;
  double& mean = s.ticks_per_byte[way_];
  const double now = static_cast<double>(ticks) / static_cast<double>(bytes_);
  if (s.tries[way_] < kFirstTries) {
    mean = s.tries[way_]++ == 0 ? now : std::min(mean, now);
    return;
  }
  const std::size_t before = s.better();
  if (std::exchange(s.trying, false)) {
    mean = std::min(now, kMost * mean);  // the mean is an old one
    s.wait_again(s.better() != before);
    return;
  }
  mean += kOfMean * (std::min(now, kMost * mean) - mean);
  if (mean < kChanged * s.settled && mean * kChanged > s.settled) return;
  s.settled = mean;
  s.until_next = std::min(s.until_next, kSoonest);
}

void StoreChoice::Size::wait_again(bool turned) {
  pause = turned ? kSoonest : std::min(2 * pause, kLatest);
  until_next = pause;
  settled = ticks_per_byte[better()];
}

}  // namespace tutti::runtime
