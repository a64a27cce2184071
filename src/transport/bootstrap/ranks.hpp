// ranks.hpp: sets of ranks as runs of neighbours, since the ranks below one node of the tree are
// few runs however many they are.
//
// Knows nothing but numbers.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tutti/types.hpp"

namespace tutti::transport {

struct RankRun {
  Rank first = 0;
  Rank last = 0;
  friend bool operator==(const RankRun&, const RankRun&) = default;
};

class RankSet {
 public:
  // Adds a run. Returns a rank that was there already, and then adds nothing; or -1.
  Rank add(RankRun run);
  Rank add(Rank rank) { return add({rank, rank}); }

  bool contains(Rank rank) const;
  bool contains_all(RankRun run) const;
  bool contains_all(const RankSet& others) const;
  bool empty() const { return runs_.empty(); }
  std::size_t count() const { return count_; }
  void clear() {
    runs_.clear();
    count_ = 0;
  }

  // Requires  !empty().
  RankRun take_first_run();

  // Those below `size` that are not in the set.
  std::vector<Rank> missing_below(int size) const;

 private:
  std::map<Rank, Rank> runs_;  // first to last; neither overlapping nor adjacent
  std::size_t count_ = 0;
};

// The parent of a rank in the binomial tree: its number without its lowest set bit.
// Requires  rank > 0.
inline Rank binomial_parent(Rank rank) { return rank & (rank - 1); }

// The ranks at and below `rank` in the binomial tree of `size` ranks: neighbours, so one run.
RankRun binomial_subtree(Rank rank, int size);

// "rank 2", "ranks 2, 5", with "and n more" when there are many.
std::string list_of_ranks(const std::vector<Rank>& ranks);

}  // namespace tutti::transport
