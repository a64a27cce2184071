// The ring: every rank talks to two neighbours only and every link carries the same load, which
// makes it bandwidth-optimal where neighbours are close; its latency grows with the ranks.
//
// All-reduce is a reduce-scatter (n-1 steps: a partial sum of each chunk travels once around and
// ends complete) and an all-gather (n-1 steps: the complete chunks travel once more).
// 2(n-1)/n of the data cross each link.
// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009).
#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {

void ring_all_reduce(Builder& b, const Group& group, const ChunkOf& own, const ChunkOf& result) {
  const int n = group.size;
  const AffineIndex me = group.me;
  const AffineIndex right = group.rank_of((me + 1) % n);
  const AffineIndex left = group.rank_of((me - 1) % n);
  const AffineIndex mine = (me + 1) % n;  // the chunk that ends complete here

  b.send(right, own(me % n));
  b.repeat(n - 2, [&](AffineIndex i) {
    b.reduce({Builder::from(left), own((me - i - 1) % n)}, {Builder::to(right)});
  });
  b.finish({Builder::from(left), own(mine)}, {result(mine), Builder::to(right)});
  b.repeat(n - 2, [&](AffineIndex i) {
    b.copy(Builder::from(left), {result((me - i) % n), Builder::to(right)});
  });
  b.recv(left, result((me + 2) % n));
}

void ring_reduce_scatter(Builder& b, const Group& group, const ChunkOf& own,
                         const Operand& result) {
  const int n = group.size;
  const AffineIndex me = group.me;
  const AffineIndex right = group.rank_of((me + 1) % n);
  const AffineIndex left = group.rank_of((me - 1) % n);

  b.send(right, own((me - 1) % n));
  b.repeat(n - 2, [&](AffineIndex i) {
    b.reduce({Builder::from(left), own((me - i - 2) % n)}, {Builder::to(right)});
  });
  b.finish({Builder::from(left), own(me % n)}, {result});
}

void ring_all_gather(Builder& b, const Group& group, const Operand& own, const ChunkOf& result) {
  const int n = group.size;
  const AffineIndex me = group.me;
  const AffineIndex right = group.rank_of((me + 1) % n);
  const AffineIndex left = group.rank_of((me - 1) % n);

  b.copy(own, {result(me % n), Builder::to(right)});
  b.repeat(n - 2, [&](AffineIndex i) {
    b.copy(Builder::from(left), {result((me - i - 1) % n), Builder::to(right)});
  });
  b.recv(left, result((me + 1) % n));
}

void tell_ring_all_reduce(Builder& b, const GroupSizes&) {
  ring_all_reduce(
      b, b.world(), [](AffineIndex j) { return Builder::input(j); },
      [](AffineIndex j) { return Builder::output(j); });
}

void tell_ring_reduce_scatter(Builder& b, const GroupSizes&) {
  ring_reduce_scatter(
      b, b.world(), [](AffineIndex j) { return Builder::input(j); }, Builder::output(0));
}

void tell_ring_all_gather(Builder& b, const GroupSizes&) {
  ring_all_gather(b, b.world(), Builder::input(0),
                  [](AffineIndex j) { return Builder::output(j); });
}

// Around the ring from the root; slices follow each other, so all links are busy at once.
void tell_ring_broadcast(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  const int place = (b.rank() - b.root() + n) % n;
  const Operand to_right = Builder::to((b.rank() + 1) % n);
  const Operand from_left = Builder::from((b.rank() + n - 1) % n);
  if (place == 0)
    b.copy(Builder::input(0), {Builder::output(0), to_right});
  else if (place < n - 1)
    b.copy(from_left, {Builder::output(0), to_right});
  else
    b.copy(from_left, {Builder::output(0)});
}

// Partial sums travel toward the root, which is the last of the chain.
void tell_ring_reduce(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  const int place = (b.rank() - b.root() + n - 1) % n;  // root: n-1
  const Operand to_right = Builder::to((b.rank() + 1) % n);
  const Operand from_left = Builder::from((b.rank() + n - 1) % n);
  if (place == 0)
    b.copy(Builder::input(0), {to_right});
  else if (place < n - 1)
    b.reduce({from_left, Builder::input(0)}, {to_right});
  else
    b.finish({from_left, Builder::input(0)}, {Builder::output(0)});
}

}  // namespace tutti::collectives::algorithms
