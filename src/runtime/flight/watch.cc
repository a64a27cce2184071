// A few comparisons, some ten milliseconds apart.
#include "runtime/flight/watch.hpp"

namespace tutti::runtime::flight {

Watch::News Watch::look(Time now, std::uint64_t call, std::uint64_t moves) {
  const Duration gap = now - last_;
  last_ = now;
  stood_ = now - since_;
  if (call != call_ || moves != moves_) {
    const News news = slow_ ? News::back : waits_ ? News::moves : News::none;
    if (call != call_) told_ = false;
    call_ = call;
    moves_ = moves;
    since_ = now;
    since_ticks_ = ticks();
    waits_ = slow_ = false;
    return news;
  }
  if (gap >= kAbsence) since_ += gap;
  if (slow_after_.count() > 0 && !told_ && now - since_ >= slow_after_) {
    waits_ = slow_ = told_ = true;
    return News::slow;
  }
  if (waits_ || now - since_ < kWaitsAfter) return News::none;
  waits_ = true;
  return News::waits;
}

}  // namespace tutti::runtime::flight
