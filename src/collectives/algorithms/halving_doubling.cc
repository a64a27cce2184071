// Recursive halving and doubling: log2(n) rounds between partners at distance 1, 2, 4, ...
//
//   doubling            each round partners exchange everything they have: ⌈log2 n⌉ messages, the
//                       least latency there is, n/2 times more data than needed (all-reduce)
//   halving + doubling  each round partners exchange half of what they are responsible for, then
//                       gather it back: 2 log2 n messages and optimal bandwidth
//                       Source: Rabenseifner, Optimization of collective reduction operations
//                       (2004)
//
// Other numbers of ranks than powers of two: the ranks beyond the largest power of two ("extras")
// fold their input into a partner first and get the result from it at the end.
#include <algorithm>

#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {
namespace {

struct Range {
  int begin = 0;
  int count = 0;
};

// The half of `range` that a rank keeps when its partner differs in bit `distance`.
Range kept_half(Range range, int rank, int distance) {
  range.count /= 2;
  if (rank & distance) range.begin += range.count;
  return range;
}

Operand ranged(Buffer buffer, Range range) {
  return Builder::chunks(buffer, range.begin, range.count);
}

// How the ranks beyond the power of two take part.
struct Fold {
  int core = 1;    // ranks 0 .. core-1 do the rounds
  int extra = -1;  // of a core rank: who folds into it
  bool is_extra = false;
  explicit Fold(const Builder& b) : core(power_of_two_below(b.ranks())) {
    is_extra = b.rank() >= core;
    if (!is_extra && b.rank() + core < b.ranks()) extra = b.rank() + core;
  }
};

}  // namespace

int power_of_two_below(int n) {
  int power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

void tell_doubling_all_reduce(Builder& b, const GroupSizes&) {
  const Fold fold(b);
  if (fold.is_extra) {
    b.send(b.rank() - fold.core, Builder::input(0));
    b.recv(b.rank() - fold.core, Builder::output(0));
    return;
  }
  Operand current = Builder::input(0);
  if (fold.extra >= 0) {
    b.reduce({current, Builder::from(fold.extra)}, {Builder::output(0)});
    current = Builder::output(0);
  }
  for (int distance = 1; distance < fold.core; distance *= 2) {
    const int partner = b.rank() ^ distance;
    // Both partners overwrite what they send, so it must leave through the queue.
    b.copy(current, {Builder::to_queue(partner)});
    // The lower rank's part first on both sides: equal bits everywhere.
    std::vector<Operand> sources = {current, Builder::from(partner)};
    if (partner < b.rank()) std::swap(sources[0], sources[1]);
    if (distance * 2 < fold.core)
      b.reduce(sources, {Builder::output(0)});
    else if (fold.extra >= 0)
      b.finish(sources, {Builder::output(0), Builder::to(fold.extra)});
    else
      b.finish(sources, {Builder::output(0)});
    current = Builder::output(0);
  }
}

void tell_halving_doubling_all_reduce(Builder& b, const GroupSizes&) {
  const Fold fold(b);
  const Range everything{0, b.shape().chunks};
  if (fold.is_extra) {
    b.send(b.rank() - fold.core, ranged(Buffer::input, everything));
    b.recv(b.rank() - fold.core, ranged(Buffer::output, everything));
    return;
  }
  Buffer current = Buffer::input;
  if (fold.extra >= 0) {
    b.reduce({ranged(current, everything), Builder::from(fold.extra)},
             {ranged(Buffer::output, everything)});
    current = Buffer::output;
  }
  // Neighbours first: they exchange the most, and partial sums are those of the canonical tree.
  Range mine = everything;
  for (int distance = 1; distance < fold.core; distance *= 2) {
    const int partner = b.rank() ^ distance;
    b.send(partner, ranged(current, kept_half(mine, partner, distance)));
    mine = kept_half(mine, b.rank(), distance);
    const std::vector<Operand> sources = {ranged(current, mine), Builder::from(partner)};
    if (distance * 2 == fold.core)
      b.finish(sources, {ranged(Buffer::output, mine)});
    else
      b.reduce(sources, {ranged(Buffer::output, mine)});
    current = Buffer::output;
  }
  for (int distance = fold.core / 2; distance >= 1; distance /= 2) {
    const int partner = b.rank() ^ distance;
    const int side = (b.rank() & distance) ? -1 : 1;
    const Range theirs{mine.begin + side * mine.count, mine.count};
    b.send(partner, ranged(Buffer::output, mine));
    b.recv(partner, ranged(Buffer::output, theirs));
    mine = Range{std::min(mine.begin, theirs.begin), mine.count * 2};
  }
  if (fold.extra >= 0) b.send(fold.extra, ranged(Buffer::output, everything));
}

// Requires  a power of two. Partial sums live in scratch, which begins at the half that the rank
// keeps in the first round.
void tell_halving_reduce_scatter(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  Range mine{0, n};
  Buffer current = Buffer::input;
  int current_begin = 0;  // the block that lies at the beginning of `current`
  auto in_current = [&](Range range) {
    return Builder::chunks(current, range.begin - current_begin, range.count);
  };
  for (int distance = n / 2; distance >= 1; distance /= 2) {
    const int partner = b.rank() ^ distance;
    b.send(partner, in_current(kept_half(mine, partner, distance)));
    mine = kept_half(mine, b.rank(), distance);
    const std::vector<Operand> sources = {in_current(mine), Builder::from(partner)};
    if (distance == 1) return b.finish(sources, {Builder::output(0)});
    if (current == Buffer::input) {
      b.reduce(sources, {Builder::scratch(0, mine.count)});
      current = Buffer::scratch;
      current_begin = mine.begin;
    } else {
      b.reduce(sources, {in_current(mine)});
    }
  }
}

// Requires  a power of two.
void tell_doubling_all_gather(Builder& b, const GroupSizes&) {
  b.copy(Builder::input(0), {Builder::output(b.rank())});
  for (int distance = 1; distance < b.ranks(); distance *= 2) {
    const int partner = b.rank() ^ distance;
    const int mine = b.rank() & ~(distance - 1);
    const int theirs = partner & ~(distance - 1);
    b.send(partner, Builder::output(mine, distance));
    b.recv(partner, Builder::output(theirs, distance));
  }
}

}  // namespace tutti::collectives::algorithms
