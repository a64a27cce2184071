// chaos_faults.hpp: what befalls the ranks of a simulated world, and when, in turns of the world.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/chaos_dice.hpp"
#include "tutti/types.hpp"

namespace tutti::cli {

struct Fault {
  enum class Kind { death, silent_death, pause, end_of_pause, abort };
  std::uint64_t turn = 0;
  Rank rank = 0;
  Kind kind = Kind::death;
};

class ChaosFaults {
 public:
  // For nobody, or a few, at any time.
  void draw(Dice& dice, int ranks);
  void add(const Fault& fault);

  // The next that is due at `turn`, or nothing.
  const Fault* next_due(std::uint64_t turn) { return turn < first_ ? nullptr : find_due(turn); }

 private:
  const Fault* find_due(std::uint64_t turn);

  std::vector<Fault> faults_;
  std::uint64_t first_ = ~std::uint64_t{0};  // no fault is due before
  Fault due_;
};

}  // namespace tutti::cli
