// Rounds in which every rank sends to one peer and receives from one: all-to-all by rotating
// distances, the shift (send_recv with a neighbour), and the dissemination barrier, whose distances
// double so that after ⌈log2 n⌉ rounds everybody has heard, directly or not, of everybody.
// Source of the barrier: Hensgen, Finkel, Manber, Two algorithms for barrier synchronization
// (1988).
#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {

void tell_pairwise_all_to_all(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  b.copy(Builder::input(b.me()), {Builder::output(b.me())});
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex right = (b.me() + i + 1) % n;
    const AffineIndex left = (b.me() - i - 1) % n;
    b.send(right, Builder::input(right));
    b.recv(left, Builder::output(left));
  });
}

void tell_shift(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  if (b.root() % n == 0) return b.copy(Builder::input(0), {Builder::output(0)});
  b.send((b.me() + b.root()) % n, Builder::input(0));
  b.recv((b.me() - b.root()) % n, Builder::output(0));
}

// What travels is nothing but the news that a rank has arrived.
void tell_dissemination_barrier(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  Operand heard = Builder::input(0);
  for (int distance = 1; distance < n; distance *= 2) {
    b.copy(heard, {Builder::to_queue((b.me() + distance) % n)});
    b.reduce({heard, Builder::from((b.me() - distance) % n)}, {Builder::output(0)});
    heard = Builder::output(0);
  }
}

}  // namespace tutti::collectives::algorithms
