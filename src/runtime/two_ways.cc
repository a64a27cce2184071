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
  if (first_tries_ == FirstTries::by_turns && tries_[1] < kFirstTries)
    return tries_[0] > tries_[1] ? 1 : 0;
  for (std::size_t way = 0; way < tries_.size(); ++way)
    if (tries_[way] < kFirstTries) return way;
  if (until_next_ > 0) {
    --until_next_;
    return better();
  }
  trying_ = true;
  tried_ = 1 - better();
  until_next_ = kSoonest;  // if its time is never told
  return tried_;
}

void TwoWays::took(std::size_t way, double time) {
  double& mean = means_[way];
  if (tries_[way] < kFirstTries) {
    mean = tries_[way]++ == 0 ? time : std::min(mean, time);
    return;
  }
  const std::size_t before = better();
  if (trying_ && way == tried_) {
    trying_ = false;
    mean = std::min(time, kMost * mean);  // the mean is an old one
    wait_again(better() != before);
    return;
  }
  mean += kOfMean * (std::min(time, kMost * mean) - mean);
  if (mean < kChanged * settled_ && mean * kChanged > settled_) return;
  settled_ = mean;
  until_next_ = std::min(until_next_, kSoonest);
}

void TwoWays::wait_again(bool turned) {
  pause_ = turned ? kSoonest : std::min(2 * pause_, kLatest);
  until_next_ = pause_;
  settled_ = means_[better()];
}

}  // namespace tutti::runtime
