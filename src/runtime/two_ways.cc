// two_ways.cc: see two_ways.hpp.
#include "runtime/two_ways.hpp"

#include <algorithm>
#include <utility>

namespace tutti::runtime {
namespace {

constexpr double kOfMean = 0.25;  // that a new time counts for
constexpr double kMost = 2;       // times the mean; more is somebody else's doing
constexpr double kChanged = 1.5;  // times what it was, or a part of it: times have changed

}  // namespace

std::size_t TwoWays::next() {
  const int first = first_tries();
  if (manner_.first_tries == FirstTries::by_turns && tries_[1] < first)
    return tries_[0] > tries_[1] ? 1 : 0;
  for (std::size_t way = 0; way < tries_.size(); ++way)
    if (tries_[way] < first) return way;
  if (tries_left_ > 0) {
    --tries_left_;
    return tried_;
  }
  if (until_next_ > 0) {
    --until_next_;
    return better();
  }
  trying_ = true;
  tried_ = 1 - better();
  tries_left_ = manner_.at_a_time - 1;
  told_ = 0;
  sum_ = 0;
  until_next_ = kSoonest;  // if its times are never told
  return tried_;
}

void TwoWays::took(std::size_t way, double time) {
  double& mean = means_[way];
  if (tries_[way] < first_tries()) {
    mean = tries_[way]++ == 0 ? time : std::min(mean, time);
    return;
  }
  if (trying_ && way == tried_) return tried(time);
  if (passed_over_ > 0) {
    --passed_over_;
    return;
  }
  mean += kOfMean * (std::min(time, kMost * mean) - mean);
  if (mean < kChanged * settled_ && mean * kChanged > settled_) return;
  settled_ = mean;
  until_next_ = std::min(until_next_, kSoonest);
}

// What the way that is being tried took; of several times the later half counts.
void TwoWays::tried(double time) {
  least_ = told_ == 0 ? time : std::min(least_, time);
  if (told_ >= manner_.at_a_time / 2) sum_ += std::min(time, kMost * least_);
  if (++told_ < manner_.at_a_time) return;
  trying_ = false;
  passed_over_ = manner_.at_a_time / 2;  // the other way has to come back into the caches, too
  const std::size_t before = better();
  double& mean = means_[tried_];  // an old one
  mean = std::min(sum_ / (told_ - manner_.at_a_time / 2), kMost * mean);
  wait_again(better() != before);
}

void TwoWays::wait_again(bool turned) {
  pause_ = turned ? kSoonest : std::min(2 * pause_, kLatest);
  until_next_ = pause_ * static_cast<std::uint32_t>(manner_.at_a_time);
  settled_ = means_[better()];
}

}  // namespace tutti::runtime
