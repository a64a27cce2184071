// Bruck's algorithms: ⌈log2 n⌉ rounds for any number of ranks, in which distances double.
//
//   all-gather   what a rank has so far goes to the left, and as much comes from the right: optimal
//                bandwidth as well
//   all-to-all   blocks travel to the right by the binary digits of their distance, so that each
//                moves up to ⌈log2 n⌉ times: for small data and many ranks
//
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications
// in multiport message-passing systems (1997).
#include <algorithm>

#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {
namespace {

// Blocks first, first + 1, ... around n, as at most two ranges that do not wrap. Both ends of a
// message cut it alike.
std::vector<Operand> around(int n, int first, int count) {
  first = (first % n + n) % n;
  const int before_wrap = std::min(count, n - first);
  std::vector<Operand> ranges = {Builder::output(first, before_wrap)};
  if (count > before_wrap) ranges.push_back(Builder::output(0, count - before_wrap));
  return ranges;
}

// Distances whose binary digit `bit` is 1.
std::vector<int> distances_with(int bit, int n) {
  std::vector<int> found;
  for (int distance = bit; distance < n; ++distance)
    if ((distance & bit) != 0) found.push_back(distance);
  return found;
}

}  // namespace

void tell_bruck_all_gather(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  b.copy(Builder::input(0), {Builder::output(b.rank())});
  for (int have = 1; have < n; have *= 2) {
    const int count = std::min(have, n - have);
    for (const Operand& blocks : around(n, b.rank(), count))
      b.send((b.rank() - have + n) % n, blocks);
    for (const Operand& blocks : around(n, b.rank() + have, count))
      b.recv((b.rank() + have) % n, blocks);
  }
}

// Scratch that the rounds need: what goes out, packed, and what comes in.
int bruck_all_to_all_scratch(int n) {
  int blocks = 0;
  for (int bit = 1; bit < n; bit *= 2)
    blocks += 2 * static_cast<int>(distances_with(bit, n).size());
  return blocks;
}

void tell_bruck_all_to_all(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  // Where the block lies that still has to go, or has come, so far.
  std::vector<Operand> block_at;
  for (int distance = 0; distance < n; ++distance)
    block_at.push_back(Builder::input((b.rank() + distance) % n));
  int scratch = 0;
  for (int bit = 1; bit < n; bit *= 2) {
    const std::vector<int> moving = distances_with(bit, n);
    const int count = static_cast<int>(moving.size());
    for (int i = 0; i < count; ++i)
      b.copy(block_at[static_cast<std::size_t>(moving[static_cast<std::size_t>(i)])],
             {Builder::scratch(scratch + i)});
    b.send((b.rank() + bit) % n, Builder::scratch(scratch, count));
    b.recv((b.rank() - bit + n) % n, Builder::scratch(scratch + count, count));
    for (int i = 0; i < count; ++i)
      block_at[static_cast<std::size_t>(moving[static_cast<std::size_t>(i)])] =
          Builder::scratch(scratch + count + i);
    scratch += 2 * count;
  }
  for (int distance = 0; distance < n; ++distance)
    b.copy(block_at[static_cast<std::size_t>(distance)],
           {Builder::output((b.rank() - distance + n) % n)});
}

}  // namespace tutti::collectives::algorithms
