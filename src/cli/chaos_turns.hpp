// chaos_turns.hpp: who of a simulated world may move next. A rank for which nothing new has
// arrived, and that has looked a few times in vain, sleeps until something does: to look again
// would show it the same. So a world costs what happens in it, and not what does not.
//
// Now and then chance wakes a sleeper all the same, as no operating system promises that nobody
// looks.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/chaos_dice.hpp"
#include "tutti/types.hpp"

namespace tutti::cli {

class ChaosTurns {
 public:
  explicit ChaosTurns(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {
    for (Rank rank = 0; rank < ranks; ++rank) wake(rank);
  }

  void wake(Rank rank) {
    Sleeper& it = at(rank);
    it.vain_looks = 0;
    if (it.awake) return;
    it.awake = true;
    it.place = awake_.size();
    awake_.push_back(rank);
  }
  void wake_all() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) wake(static_cast<Rank>(rank));
  }
  void sleep(Rank rank) {
    Sleeper& it = at(rank);
    if (!it.awake) return;
    it.awake = false;
    awake_[it.place] = awake_.back();
    at(awake_[it.place]).place = it.place;
    awake_.pop_back();
  }

  // What came of a look, of which `patience` may be in vain.
  void looked(Rank rank, bool moved, int patience) {
    if (moved)
      wake(rank);
    else if (++at(rank).vain_looks >= patience)
      sleep(rank);
  }

  std::size_t awake() const { return awake_.size(); }
  Rank awake(std::size_t index) const { return awake_[index]; }

 private:
  struct Sleeper {
    bool awake = false;
    int vain_looks = 0;
    std::size_t place = 0;  // in awake_
  };
  Sleeper& at(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Sleeper> ranks_;
  std::vector<Rank> awake_;
};

}  // namespace tutti::cli
