// ranks.cc: see ranks.hpp.
#include "transport/bootstrap/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::transport {

Rank RankSet::add(RankRun run) {
  const auto after = runs_.upper_bound(run.last);
  if (after != runs_.begin()) {
    const auto before = std::prev(after);
    if (before->second >= run.first) return std::max(before->first, run.first);
  }
  count_ += static_cast<std::size_t>(run.last - run.first) + 1;
  if (after != runs_.end() && after->first == run.last + 1) {
    run.last = after->second;
    runs_.erase(after);
  }
  const auto next = runs_.lower_bound(run.first);
  if (next != runs_.begin() && std::prev(next)->second == run.first - 1)
    std::prev(next)->second = run.last;
  else
    runs_.emplace(run.first, run.last);
  return -1;
}

bool RankSet::contains(Rank rank) const { return contains_all(RankRun{rank, rank}); }

bool RankSet::contains_all(RankRun run) const {
  const auto after = runs_.upper_bound(run.first);
  return after != runs_.begin() && std::prev(after)->second >= run.last;
}

bool RankSet::contains_all(const RankSet& others) const {
  return std::all_of(others.runs_.begin(), others.runs_.end(), [this](const auto& run) {
    return contains_all(RankRun{run.first, run.second});
  });
}

RankRun RankSet::take_first_run() {
  const auto first = runs_.begin();
  const RankRun run{first->first, first->second};
  runs_.erase(first);
  count_ -= static_cast<std::size_t>(run.last - run.first) + 1;
  return run;
}

std::vector<Rank> RankSet::missing_below(int size) const {
  std::vector<Rank> missing;
  Rank next = 0;
  for (const auto& [first, last] : runs_) {
    for (; next < first && next < size; ++next) missing.push_back(next);
    next = last + 1;
  }
  for (; next < size; ++next) missing.push_back(next);
  return missing;
}

RankRun binomial_subtree(Rank rank, int size) {
  if (rank == 0) return {0, size - 1};
  const Rank lowest_bit = rank & -rank;
  // As a difference, because the sum may not fit.
  return {rank, lowest_bit > size - rank ? size - 1 : rank + lowest_bit - 1};
}

std::string list_of_ranks(const std::vector<Rank>& ranks) {
  constexpr std::size_t kShown = 16;
  const std::size_t shown = std::min(kShown, ranks.size());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > shown) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

}  // namespace tutti::transport
