// quickest_way.hpp: which of two ways of doing the same, or a few, is the quickest, found out by
// going each of them now and then: the quickest is kept, and the others are tried again in turn
// after a while, soon when times have changed, the more rarely the longer they have not.
//
// Knows nothing of what the ways are, or of the unit of time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::runtime {

class QuickestWay {
 public:
  static constexpr std::size_t kMostWays = 6;

  // In which order the ways are gone before anything is known.
  enum class FirstTries : std::uint8_t { in_a_row, by_turns };

  // How they are tried.
  struct Manner {
    // Of the first way's time, what each may take to be as good as it.
    std::array<double, kMostWays> worth = {1, 1, 1, 1, 1, 1};
    FirstTries first_tries = FirstTries::in_a_row;
    std::size_t row_begins = 0;  // with that way. Requires  it is below `ways`.
    // Times that a way is gone when it is tried, where the first ones after a while tell little:
    // what it works in must come into the caches first.
    int at_a_time = 1;
    std::size_t ways = 2;   // Requires  2 to kMostWays.
    double of_mean = 0.25;  // that a new time counts for
    double most = 2;        // times the mean; what is more is somebody else's doing
  };
  explicit QuickestWay(const Manner& manner) : manner_(manner) {}
  QuickestWay() : QuickestWay(Manner()) {}

  // Where to go the next time: below Manner::ways.
  std::size_t next();

  // Whether it is worth a look at the clock how long that way takes: always where it is tried. Once
  // it is known to be the quickest, one time of a few says as well whether times have changed.
  bool wants_time() const { return wants_time_; }

  // What going the way `way` took. Some times may be told late, or not at all.
  void took(std::size_t way, double time);

 private:
  static constexpr std::uint32_t kSoonest = 8;
  static constexpr std::uint32_t kLatest = 512;
  static constexpr std::uint32_t kTimedEvery = 4;

  void find_best();
  std::size_t untried() const;
  std::size_t next_to_try() const;
  int first_tries() const { return manner_.at_a_time == 1 ? 3 : manner_.at_a_time; }  // of a way
  void tried(double time);
  void wait_again(bool turned);

  Manner manner_;
  std::array<double, kMostWays> means_{};  // of the latest times
  std::array<int, kMostWays> tries_{};
  std::size_t best_ = 0;    // by means_
  bool all_tried_ = false;  // the first time
  bool wants_time_ = true;
  double settled_ = 0;            // mean of the best way when another one was tried
  std::uint32_t until_next_ = 0;  // times, before another way is tried again
  std::uint32_t pause_ = kSoonest;
  std::size_t soon_ = 0;  // other ways that are to be tried soon, as times have changed
  bool trying_ = false;
  std::size_t tried_ = 0;  // the way that is being tried, or was the latest
  int tries_left_ = 0;     // of it, to go
  int told_ = 0;           // of them, so far
  int passed_over_ = 0;    // times after them that say nothing
  double least_ = 0;       // of their times
  double sum_ = 0;         // of those of the later half
};

}  // namespace tutti::runtime
