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

  void add(Lane lane, const std::string& name, double begin_us, double end_us) {
    if (sink_) sink_(lane, name, begin_us, end_us);
  }

  // Communication that nothing was computed under.
  void add_exposed(double us) { exposed_us_ += us; }
  double exposed_us() const { return exposed_us_; }
  void clear_exposed() { exposed_us_ = 0; }

 private:
  Sink sink_;
  double exposed_us_ = 0;
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
    if (lane_ == Lane::communication) timeline_.add_exposed(end_us - begin_us_);
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
