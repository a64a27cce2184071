// Direct: every rank talks to every other one at once, in one pass over all peers. Where ranks can
// load and store each other's memory this is the least work there is: a rank reads its chunk of all
// n inputs and stores the result into all n outputs, each byte touched once, two signals per peer.
// Over a network it sends n-1 messages of a chunk each, so it suits few ranks.
//
// What is only copied is stored by its owner rather than read by who wants it: a processor goes on
// while its stores are under way, and waits for what it loads from another one's cache. Where that
// turns out not to be quicker, who wants it reads after all (runtime/pull_choice.hpp).
#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {
namespace {

using MessageWith = Operand (*)(AffineIndex peer);

// Messages from, to, or into every other member, beginning with the right neighbour so that not all
// ranks turn to the same one first.
std::vector<Operand> others(const Group& group, MessageWith message = Builder::from) {
  std::vector<Operand> operands;
  for (int i = 1; i < group.size; ++i)
    operands.push_back(message(group.rank_of((group.me + i) % group.size)));
  return operands;
}

std::vector<Operand> with(Operand first, std::vector<Operand> rest) {
  rest.insert(rest.begin(), std::move(first));
  return rest;
}

Operand in(AffineIndex j) { return Builder::input(j); }
Operand out(AffineIndex j) { return Builder::output(j); }

}  // namespace

void direct_reduce_scatter(Builder& b, const Group& group, const ChunkOf& own,
                           const Operand& result, bool finish) {
  const int n = group.size;
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex peer = (group.me + i + 1) % n;
    b.send(group.rank_of(peer), own(peer));
  });
  if (finish)
    b.finish(with(own(group.me % n), others(group)), {result});
  else
    b.reduce(with(own(group.me % n), others(group)), {result});
}

void direct_all_gather(Builder& b, const Group& group, const Operand& own, const ChunkOf& result) {
  const int n = group.size;
  b.copy(own, with(result(group.me % n), others(group, Builder::into)));
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex peer = (group.me - i - 1) % n;
    b.recv(group.rank_of(peer), result(peer));
  });
}

void tell_direct_all_reduce(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex peer = (b.me() + i + 1) % n;
    b.send(peer, in(peer));
  });
  b.finish(with(in(b.me()), others(b.world())), with(out(b.me()), others(b.world())));
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex peer = (b.me() - i - 1) % n;
    b.recv(peer, out(peer));
  });
}

// Everybody reduces everything: most work, but every rank waits only once. Sources stand in the
// order of ranks, so that all get the same bits. Through queues, because in place everybody
// overwrites what the others would read.
void tell_one_shot_all_reduce(Builder& b, const GroupSizes&) {
  std::vector<Operand> peers;
  for (int i = 1; i < b.ranks(); ++i)
    peers.push_back(Builder::to_queue((b.rank() + i) % b.ranks()));
  b.copy(in(0), peers);
  std::vector<Operand> sources;
  for (Rank rank = 0; rank < b.ranks(); ++rank)
    sources.push_back(rank == b.rank() ? in(0) : Builder::from(rank));
  b.finish(sources, {out(0)});
}

void tell_direct_reduce_scatter(Builder& b, const GroupSizes&) {
  direct_reduce_scatter(b, b.world(), in, out(0), true);
}

void tell_direct_all_gather(Builder& b, const GroupSizes&) {
  direct_all_gather(b, b.world(), in(0), out);
}

void tell_direct_broadcast(Builder& b, const GroupSizes&) {
  if (b.rank() != b.root()) return b.recv(b.root(), out(0));
  std::vector<Operand> destinations = {out(0)};
  for (int i = 1; i < b.ranks(); ++i)
    destinations.push_back(Builder::to((b.rank() + i) % b.ranks()));
  b.copy(in(0), destinations);
}

// One n-th of the data is the root's work, so that all n processors copy equally much.
void tell_cooperative_broadcast(Builder& b, const GroupSizes&) {
  const int read = b.ranks() - 1;  // chunks that everybody reads
  const Operand first = Builder::input(0, read);
  if (b.rank() != b.root()) {
    b.recv(b.root(), Builder::output(0, read));
    return b.recv(b.root(), out(read));
  }
  std::vector<Operand> readers;
  std::vector<Operand> stores = {out(read)};
  for (int i = 1; i < b.ranks(); ++i) {
    const int peer = (b.rank() + i) % b.ranks();
    readers.push_back(Builder::to(peer));
    stores.push_back(Builder::into(peer));
  }
  b.copy(first, readers);  // before anything takes time
  b.copy(in(read), stores);
  b.copy(first, {Builder::output(0, read)});
}

void tell_direct_reduce(Builder& b, const GroupSizes&) {
  if (b.rank() != b.root()) return b.send(b.root(), in(0));
  std::vector<Operand> sources = {in(0)};
  for (int i = 1; i < b.ranks(); ++i) sources.push_back(Builder::from((b.rank() + i) % b.ranks()));
  b.finish(sources, {out(0)});
}

// Every rank reduces its chunk of all inputs, and stores it at the root.
void tell_cooperative_reduce(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex peer = (b.me() + i + 1) % n;
    b.send(peer, in(peer));
  });
  const std::vector<Operand> sources = with(in(b.me()), others(b.world()));
  if (b.rank() != b.root()) return b.finish(sources, {Builder::to(b.root())});
  b.finish(sources, {out(b.me())});
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex peer = (b.me() - i - 1) % n;
    b.recv(peer, out(peer));
  });
}

void tell_direct_gather(Builder& b, const GroupSizes&) {
  if (b.rank() != b.root()) return b.send(b.root(), in(0));
  b.copy(in(0), {out(b.root())});
  for (int i = 1; i < b.ranks(); ++i) {
    const int peer = (b.root() + i) % b.ranks();
    b.recv(peer, out(peer));
  }
}

void tell_direct_scatter(Builder& b, const GroupSizes&) {
  if (b.rank() != b.root()) return b.recv(b.root(), out(0));
  for (int i = 1; i < b.ranks(); ++i) {
    const int peer = (b.root() + i) % b.ranks();
    b.send(peer, in(peer));
  }
  b.copy(in(b.root()), {out(0)});
}

void tell_direct_all_to_all(Builder& b, const GroupSizes&) {
  const int n = b.ranks();
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex peer = (b.me() + i + 1) % n;
    b.copy(in(peer), {Builder::into(peer)});
  });
  b.copy(in(b.me()), {out(b.me())});
  b.repeat(n - 1, [&](AffineIndex i) {
    const AffineIndex peer = (b.me() - i - 1) % n;
    b.recv(peer, out(peer));
  });
}

}  // namespace tutti::collectives::algorithms
