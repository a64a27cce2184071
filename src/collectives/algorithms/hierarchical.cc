// Two levels: inside a node, where links are fast, and across nodes, where they are slow and each
// rank has its own way out. Only 1/g of the data of a node of g ranks leaves through each rank.
//
// Ranks are numbered node by node: rank = node * g + place. `column` is the group of the ranks with
// the same place on all nodes.
#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {
namespace {

struct Levels {
  Levels(const Builder& b, int g)
      : size(g),
        nodes(b.ranks() / g),
        node(b.rank() / g),
        place(b.rank() % g),
        inside(b.subgroup(node * g, 1, g)),
        column(b.subgroup(place, g, nodes)) {}
  int size;
  int nodes;
  int node;
  int place;
  Group inside;
  Group column;
};

}  // namespace

// Reduce-scatter inside the node, all-reduce of that part across nodes, all-gather inside.
// The data is cut into size * nodes chunks; place p is responsible for `nodes` of them.
void tell_hierarchical_all_reduce(Builder& b, int group) {
  const Levels levels(b, group);
  const int nodes = levels.nodes;
  auto part_of = [&](Buffer buffer, AffineIndex place) {
    return Builder::chunks(buffer, place * nodes, nodes);
  };
  const Operand mine = part_of(Buffer::output, levels.place);
  direct_reduce_scatter(
      b, levels.inside, [&](AffineIndex p) { return part_of(Buffer::input, p); }, mine, false);
  auto in_mine = [&](AffineIndex j) { return Builder::output(j + levels.place * nodes); };
  ring_all_reduce(b, levels.column, in_mine, in_mine);
  direct_all_gather(b, levels.inside, mine,
                    [&](AffineIndex p) { return part_of(Buffer::output, p); });
}

// Inside: place p reduces, for every node k, the block of rank k * g + p. Across: those blocks are
// reduce-scattered over the nodes.
void tell_hierarchical_reduce_scatter(Builder& b, int group) {
  const Levels levels(b, group);
  for (int k = 0; k < levels.nodes; ++k)
    direct_reduce_scatter(
        b, levels.inside, [&](AffineIndex p) { return Builder::input(p + k * group); },
        Builder::scratch(k), false);
  ring_reduce_scatter(
      b, levels.column, [](AffineIndex k) { return Builder::scratch(k); }, Builder::output(0));
}

// Across: the ranks of a column collect their blocks. Inside: every rank hands its column's blocks
// to the others.
void tell_hierarchical_all_gather(Builder& b, int group) {
  const Levels levels(b, group);
  auto block = [&](AffineIndex node, int place) { return Builder::output(node * group + place); };
  ring_all_gather(b, levels.column, Builder::input(0),
                  [&](AffineIndex k) { return block(k, levels.place); });
  for (int k = 0; k < levels.nodes; ++k)
    for (int i = 1; i < group; ++i) {
      const int right = (levels.place + i) % group;
      const int left = (levels.place - i + group) % group;
      b.send(levels.node * group + right, block(k, levels.place));
      b.recv(levels.node * group + left, block(k, left));
    }
}

// Along the root's column from node to node, then from each of those ranks to its whole node.
void tell_hierarchical_broadcast(Builder& b, int group) {
  const Levels levels(b, group);
  const int root_place = b.root() % group;
  const int leader = levels.node * group + root_place;
  if (b.rank() != leader) return b.recv(leader, Builder::output(0));
  const int distance = (levels.node - b.root() / group + levels.nodes) % levels.nodes;
  std::vector<Operand> destinations = {Builder::output(0)};
  if (distance + 1 < levels.nodes)
    destinations.push_back(Builder::to((b.rank() + group) % b.ranks()));
  for (int i = 1; i < group; ++i)
    destinations.push_back(Builder::to(levels.node * group + (root_place + i) % group));
  const int before = (b.rank() - group + b.ranks()) % b.ranks();
  b.copy(distance == 0 ? Builder::input(0) : Builder::from(before), destinations);
}

// Every node reduces into its rank of the root's column, then the column reduces toward the root.
void tell_hierarchical_reduce(Builder& b, int group) {
  const Levels levels(b, group);
  const int root_place = b.root() % group;
  const int leader = levels.node * group + root_place;
  if (b.rank() != leader) return b.send(leader, Builder::input(0));
  std::vector<Operand> sources = {Builder::input(0)};
  for (int i = 1; i < group; ++i)
    sources.push_back(Builder::from(levels.node * group + (root_place + i) % group));
  const int distance = (b.root() / group - levels.node + levels.nodes) % levels.nodes;
  if (distance + 1 < levels.nodes)
    sources.push_back(Builder::from((b.rank() - group + b.ranks()) % b.ranks()));
  if (distance == 0) return b.finish(sources, {Builder::output(0)});
  b.reduce(sources, {Builder::to((b.rank() + group) % b.ranks())});
}

}  // namespace tutti::collectives::algorithms
