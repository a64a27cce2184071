// turns.hpp: when ranks that share a processor get it, for the cost model.
//
// Who waits gives the processor away, and it goes around: each switch costs the same, whether or
// not who gets it finds something to do. So a rank that is missed by others is met at its place in
// the round, and an algorithm in which many ranks wait for few costs rounds in which nothing is
// done. Source: processes of one core that yield to each other are run in turn by Linux's
// scheduler, as long as none sleeps.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace tutti::collectives {

class Turns {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Next {
    double start_ns = kNever;  // kNever: nobody has anything to do
    int place = 0;
  };

  Turns(int places, double switch_ns)
      : switch_ns_(switch_ns), open_(static_cast<std::size_t>(places)) {}

  // The rank at `place` has a step that can be taken from `ready_ns` on.
  void open(int place, double ready_ns, std::uint32_t step);

  // Whose step is taken next, and when.
  const Next& next() const { return next_; }

  // Takes that step; the processor is busy with it until `end_ns`, which the caller knows only
  // afterwards.
  // Requires  next() is somebody's.
  std::uint32_t take();
  void busy_until(double end_ns);

  // The first time from `ready_ns` on at which the rank at `place` has the processor.
  double visit_ns(int place, double ready_ns) const;

 private:
  using Entry = std::pair<double, std::uint32_t>;
  using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

  void consider(int place);

  double switch_ns_;
  double now_ns_ = 0;
  int here_ = 0;  // whose turn it is
  Next next_;
  std::vector<Queue> open_;  // by place: when, and the step
};

}  // namespace tutti::collectives
