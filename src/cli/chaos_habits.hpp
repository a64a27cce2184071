// chaos_habits.hpp: what a rank of a simulated world does when its communicator has failed, until
// the survivors agree: programs need not look for a failure all at once, nor do the same about it.
#pragma once

#include "cli/chaos_dice.hpp"

namespace tutti::cli {

enum class Habit {
  wait,    // make no call, and wait for the others to agree
  call,    // go on calling: every call gives the same error
  leave,   // destroy the communicator and take no part in anything
  revoke,  // end the calls of the others
};

// Of ranks that mostly are alike, in a world of its own.
class ChaosHabits {
 public:
  ChaosHabits() = default;
  explicit ChaosHabits(Dice& dice) : usual_(dice.one_of(kUsual)) {}

  Habit draw(Dice& dice) const { return dice.one_in(5) ? dice.one_of(kAll) : usual_; }

 private:
  static constexpr Habit kUsual[] = {Habit::wait, Habit::wait, Habit::call, Habit::call,
                                     Habit::leave};
  static constexpr Habit kAll[] = {Habit::wait, Habit::call, Habit::leave, Habit::revoke};

  Habit usual_ = Habit::wait;
};

}  // namespace tutti::cli
