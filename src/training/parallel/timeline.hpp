// timeline.hpp: when a rank computed, and when it communicated: for the trace, and for the share of
// a step that communication was waited for ("exposed").
//
// Knows clocks; does not know what is done in the times that it is told.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::training {

enum class Lane : unsigned char { compute, communication };

// Threading  one thread.
class Timeline {
 public:
  // What is done with each finished stretch; empty: nothing but adding up.
  using Sink =
      std::function<void(Lane lane, const std::string& name, double begin_us, double end_us)>;

  void set_sink(Sink sink) { sink_ = std::move(sink); }
  bool is_recording() const { return static_cast<bool>(sink_); }

  static double now_us() {
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
  }

  // A stretch of computing in which communication was waited for becomes what is between the waits.
  void add(Lane lane, const std::string& name, double begin_us, double end_us) {
    if (!sink_) return;
    if (lane == Lane::compute)
      for (const Wait& wait : waits_) {
        if (wait.end_us <= begin_us || wait.begin_us >= end_us) continue;
        if (wait.begin_us > begin_us) sink_(lane, name, begin_us, wait.begin_us);
        begin_us = wait.end_us;
      }
    if (begin_us < end_us) sink_(lane, name, begin_us, end_us);
  }

  // Communication that this thread waited for, and computed nothing meanwhile.
  void add_exposed(double begin_us, double end_us) {
    exposed_us_ += end_us - begin_us;
    if (sink_) waits_.push_back({begin_us, end_us});
  }
  double exposed_us() const { return exposed_us_; }
  // Begins anew; to be called between steps.
  void clear_exposed() {
    exposed_us_ = 0;
    waits_.clear();
  }

 private:
  struct Wait {
    double begin_us, end_us;
  };

  Sink sink_;
  double exposed_us_ = 0;
  std::vector<Wait> waits_;  // of this step, one after the other
};

// A stretch from its making to its end.
class Stretch {
 public:
  Stretch(Timeline& timeline, Lane lane, const char* what, std::int64_t number = -1)
      : timeline_(timeline),
        lane_(lane),
        what_(what),
        number_(number),
        begin_us_(timeline.now_us()) {}
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;
  ~Stretch() {
    const double end_us = timeline_.now_us();
    if (lane_ == Lane::communication) timeline_.add_exposed(begin_us_, end_us);
    if (timeline_.is_recording())
      timeline_.add(lane_, number_ < 0 ? what_ : what_ + (" " + std::to_string(number_)), begin_us_,
                    end_us);
  }

 private:
  Timeline& timeline_;
  Lane lane_;
  const char* what_;
  std::int64_t number_;
  double begin_us_;
};

}  // namespace tutti::training
