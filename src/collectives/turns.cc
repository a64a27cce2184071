// turns.cc: see turns.hpp.
#include "collectives/turns.hpp"

#include <cmath>

#include "base/assert.hpp"

namespace tutti::collectives {

void Turns::open(int place, double ready_ns, std::uint32_t step) {
  open_[static_cast<std::size_t>(place)].emplace(ready_ns, step);
  consider(place);
}

std::uint32_t Turns::take() {
  TUTTI_ASSERT(next_.start_ns < kNever, "somebody has something to do");
  Queue& queue = open_[static_cast<std::size_t>(next_.place)];
  const std::uint32_t step = queue.top().second;
  queue.pop();
  here_ = next_.place;
  now_ns_ = next_.start_ns;
  return step;
}

void Turns::busy_until(double end_ns) {
  now_ns_ = end_ns;
  next_ = Next{};
  for (int place = 0; place < static_cast<int>(open_.size()); ++place) consider(place);
}

void Turns::consider(int place) {
  const Queue& queue = open_[static_cast<std::size_t>(place)];
  if (queue.empty()) return;
  const double start_ns = visit_ns(place, queue.top().first);
  if (start_ns < next_.start_ns) next_ = Next{start_ns, place};
}

double Turns::visit_ns(int place, double ready_ns) const {
  if (place == here_ && ready_ns <= now_ns_) return now_ns_;
  const int places = static_cast<int>(open_.size());
  const double first_ns = now_ns_ + switch_ns_ * ((place - here_ + places) % places);
  if (first_ns >= ready_ns) return first_ns;
  const double round_ns = switch_ns_ * places;
  if (round_ns <= 0) return ready_ns;
  return first_ns + round_ns * std::ceil((ready_ns - first_ns) / round_ns);
}

}  // namespace tutti::collectives
