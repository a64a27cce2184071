// Draws faults, and keeps them until they are due.
#include "cli/chaos_faults.hpp"

#include <algorithm>

namespace tutti::cli {

void ChaosFaults::add(const Fault& fault) {
  faults_.push_back(fault);
  first_ = std::min(first_, fault.turn);
}

void ChaosFaults::draw(Dice& dice, int ranks) {
  const std::uint64_t actors = 1 + static_cast<std::uint64_t>(ranks) / 16;
  const std::uint64_t horizons[] = {40 * actors, 400 * actors, 3500 * actors};
  const auto when = [&] { return dice.below(dice.one_of(horizons)); };
  const auto whom = [&] { return dice.between(0, ranks - 1); };
  const int kills = dice.between(0, std::min(3, ranks - 1));
  for (int i = 0; i < kills; ++i) {
    const std::uint64_t turn = when();
    const Rank rank = whom();
    add({turn, rank, dice.one_in(6) ? Fault::Kind::silent_death : Fault::Kind::death});
  }
  const auto now_and_then = [&](Fault::Kind kind, std::uint64_t one_in) {
    if (!dice.one_in(one_in)) return;
    const std::uint64_t turn = when();
    add({turn, whom(), kind});
  };
  now_and_then(Fault::Kind::pause, 4);
  now_and_then(Fault::Kind::abort, 10);
}

const Fault* ChaosFaults::find_due(std::uint64_t turn) {
  const auto due = std::find_if(faults_.begin(), faults_.end(),
                                [&](const Fault& fault) { return fault.turn <= turn; });
  if (due != faults_.end()) {
    due_ = *due;
    faults_.erase(due);
    return &due_;
  }
  first_ = ~std::uint64_t{0};
  for (const Fault& fault : faults_) first_ = std::min(first_, fault.turn);
  return nullptr;
}

}  // namespace tutti::cli
