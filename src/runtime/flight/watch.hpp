// watch.hpp: notices when a call stands still for long, and when it moves on.
//
// Time and progress come in as arguments. Knows nothing of what is done about it.
#pragma once

#include <chrono>
#include <cstdint>

#include "runtime/flight/ticks.hpp"

namespace tutti::runtime::flight {

// Threading  the one thread that waits.
class Watch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  enum class News : std::uint8_t {
    none,
    waits,  // long enough for the recorder to say so
    slow,   // long enough to tell people; once for each call
    moves,  // after `waits`
    back,   // after `slow`
  };

  // 0: nothing is ever slow.
  explicit Watch(std::chrono::milliseconds slow_after) : slow_after_(slow_after) {}

  // Whether look() is worth its while at `now`.
  bool due(Time now) const { return now - last_ >= kEvery; }

  // `call`: the call that is waited for; `moves` changes whenever that moves.
  News look(Time now, std::uint64_t call, std::uint64_t moves);

  bool slow() const { return slow_; }
  void forget() { slow_ = false; }  // it will not come back

  // Since when nothing moves, in ticks; and, after `back`, how long that was.
  std::uint64_t since_ticks() const { return since_ticks_; }
  Duration stood() const { return stood_; }

 private:
  static constexpr std::chrono::milliseconds kEvery{10};
  static constexpr std::chrono::milliseconds kWaitsAfter{20};
  // Who has not looked for so long was stopped itself, and cannot judge others.
  static constexpr std::chrono::milliseconds kAbsence{500};

  Duration slow_after_;
  std::uint64_t call_ = 0;
  std::uint64_t moves_ = 0;
  Time last_{};
  Time since_{};
  std::uint64_t since_ticks_ = 0;
  Duration stood_{};
  bool waits_ = false;
  bool slow_ = false;
  bool told_ = false;
};

}  // namespace tutti::runtime::flight
