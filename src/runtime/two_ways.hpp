// two_ways.hpp: which of two ways of doing the same is the quicker one, found out by going both now
// and then: the quicker one is kept, and the other one tried again after a while, soon when times
// have changed, the more rarely the longer they have not.
//
// Knows nothing of what the ways are, or of the unit of time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::runtime {

class TwoWays {
 public:
  // In which order the ways are gone before anything is known.
  enum class FirstTries : std::uint8_t { in_a_row, by_turns };

  // `worth_share`: of the first way's time, what the second one may take to be chosen.
  explicit TwoWays(double worth_share = 1, FirstTries first_tries = FirstTries::in_a_row)
      : worth_share_(worth_share), first_tries_(first_tries) {}

  // Where to go the next time: 0 or 1.
  std::size_t next();

  // What going the way `way` took. Some times may be told late, or not at all.
  void took(std::size_t way, double time);

 private:
  static constexpr int kFirstTries = 3;  // of either way
  static constexpr std::uint32_t kSoonest = 8;
  static constexpr std::uint32_t kLatest = 512;

  std::size_t better() const { return means_[1] < worth_share_ * means_[0] ? 1 : 0; }
  void wait_again(bool turned);

  double worth_share_;
  FirstTries first_tries_;
  std::array<double, 2> means_{};  // of the latest times
  std::array<int, 2> tries_{};
  double settled_ = 0;            // mean of the better way when the other one was tried
  std::uint32_t until_next_ = 0;  // times, before the other way is tried again
  std::uint32_t pause_ = kSoonest;
  bool trying_ = false;
  std::size_t tried_ = 0;  // the way that is being tried
};

}  // namespace tutti::runtime
