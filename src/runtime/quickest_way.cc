// quickest_way.cc: see quickest_way.hpp.
#include "runtime/quickest_way.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace tutti::runtime {
namespace {

constexpr double kChanged = 1.5;  // times what it was, or a part of it: times have changed

}  // namespace

void QuickestWay::find_best() {
  best_ = 0;
  for (std::size_t way = 1; way < manner_.ways; ++way)
    if (means_[way] * manner_.worth[best_] < means_[best_] * manner_.worth[way]) best_ = way;
}

std::size_t QuickestWay::next_to_try() const {
  const std::size_t after = (tried_ + 1) % manner_.ways;
  return after == best_ ? (after + 1) % manner_.ways : after;
}

// The first way that was not gone often enough yet; Manner::ways if there is none.
std::size_t QuickestWay::untried() const {
  const auto tries = std::span(tries_).first(manner_.ways);
  const auto least = std::min_element(tries.begin(), tries.end());
  if (*least >= first_tries()) return manner_.ways;
  if (manner_.first_tries == FirstTries::by_turns)
    return static_cast<std::size_t>(least - tries.begin());
  std::size_t way = manner_.row_begins;
  while (tries_[way] >= first_tries()) way = (way + 1) % manner_.ways;
  return way;
}

std::size_t QuickestWay::next() {
  wants_time_ = true;
  if (!all_tried_) return untried();
  if (tries_left_ > 0) {
    --tries_left_;
    return tried_;
  }
  if (until_next_ > 0) {
    --until_next_;
    wants_time_ = passed_over_ > 0 || until_next_ % kTimedEvery == 0;
    return best_;
  }
  trying_ = true;
  tried_ = next_to_try();
  tries_left_ = manner_.at_a_time - 1;
  told_ = 0;
  sum_ = 0;
  until_next_ = kSoonest;  // if its times are never told
  return tried_;
}

void QuickestWay::took(std::size_t way, double time) {
  double& mean = means_[way];
  if (tries_[way] < first_tries()) {
    mean = tries_[way]++ == 0 ? time : std::min(mean, time);
    all_tried_ = untried() == manner_.ways;
    if (all_tried_) until_next_ = kSoonest;
    find_best();
    return;
  }
  if (trying_ && way == tried_) return tried(time);
  if (passed_over_ > 0) {
    --passed_over_;
    return;
  }
  mean += manner_.of_mean * (std::min(time, manner_.most * mean) - mean);
  find_best();
  if (mean < kChanged * settled_ && mean * kChanged > settled_) return;
  settled_ = mean;
  until_next_ = std::min(until_next_, kSoonest);
  soon_ = manner_.ways - 1;
}

// What the way that is being tried took; of several times the later half counts.
void QuickestWay::tried(double time) {
  least_ = told_ == 0 ? time : std::min(least_, time);
  if (told_ >= manner_.at_a_time / 2) sum_ += std::min(time, manner_.most * least_);
  if (++told_ < manner_.at_a_time) return;
  trying_ = false;
  passed_over_ = manner_.at_a_time / 2;  // the best way has to come back into the caches, too
  const std::size_t before = best_;
  double& mean = means_[tried_];  // an old one
  mean = std::min(sum_ / (told_ - manner_.at_a_time / 2), manner_.most * mean);
  find_best();
  wait_again(best_ != before);
}

void QuickestWay::wait_again(bool turned) {
  pause_ = turned ? kSoonest : std::min(2 * pause_, kLatest);
  until_next_ = pause_ * static_cast<std::uint32_t>(manner_.at_a_time);
  if (soon_ > 0 && --soon_ > 0) until_next_ = kSoonest;
  settled_ = means_[best_];
}

}  // namespace tutti::runtime
