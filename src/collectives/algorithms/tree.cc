// The double binary tree: two binary trees over all ranks, each carrying half of the data, such
// that an inner rank of one is a leaf of the other. Logarithmic latency like one tree, but every
// rank sends and receives the full data once in each direction, so the bandwidth is that of a ring.
// Source: Sanders, Speck, Träff, Two-tree algorithms for full bandwidth broadcast, reduction and
// scan (2009).
#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {
namespace {

// The in-order binary tree over places 0 .. n-1: odd places are leaves, place 0 is the root with
// one child. A place's parent is found by moving its lowest set bit up by one.
int parent_in_order(int place, int n) {
  if (place == 0) return -1;
  const int lowest = place & -place;
  const int parent = (place ^ lowest) | (lowest << 1);
  return parent < n ? parent : place ^ lowest;
}

struct TreeNode {
  int parent = -1;
  std::vector<int> children;
};

// The neighbours of `member` (0 .. n-1) in tree 0 or 1. In the second tree the places are mirrored
// (n even) or shifted by one (n odd), which turns leaves into inner nodes.
TreeNode node_in_tree(int tree, int member, int n) {
  auto place_of = [&](int m) {
    if (tree == 0) return m;
    return n % 2 == 0 ? n - 1 - m : (m + n - 1) % n;
  };
  auto member_at = [&](int place) {
    if (tree == 0) return place;
    return n % 2 == 0 ? n - 1 - place : (place + 1) % n;
  };
  TreeNode node;
  const int place = place_of(member);
  if (const int parent = parent_in_order(place, n); parent >= 0) node.parent = member_at(parent);
  for (int other = 0; other < n; ++other)
    if (parent_in_order(other, n) == place) node.children.push_back(member_at(other));
  return node;
}

std::vector<Operand> with_children(Operand first, const TreeNode& node,
                                   const std::function<int(int)>& rank_of) {
  std::vector<Operand> operands = {std::move(first)};
  for (int child : node.children) operands.push_back(Builder::to(rank_of(child)));
  return operands;
}

// Broadcast and reduce span the trees over all ranks but the root, which feeds (or drains) both
// trees at their top. Members count from the rank after the root.
struct Rooted {
  explicit Rooted(const Builder& b) : n(b.ranks()), root(b.root()) {
    member = (b.rank() - root - 1 + n) % n;
  }
  int rank_of(int m) const { return (m + root + 1) % n; }
  int top(int tree) const {
    for (int m = 0; m < n - 1; ++m)
      if (node_in_tree(tree, m, n - 1).parent < 0) return rank_of(m);
    return -1;
  }
  int n;
  int root;
  int member = 0;  // n-1: the root itself
};

}  // namespace

void tell_tree_all_reduce(Builder& b, const GroupSizes&) {
  auto same = [](int member) { return member; };
  auto tell_up = [&](int tree) {
    const TreeNode node = node_in_tree(tree, b.rank(), b.ranks());
    const auto sources = with_children(Builder::input(tree), node, same);
    if (node.parent < 0)
      b.finish(sources, with_children(Builder::output(tree), node, same));
    else if (node.children.empty())
      b.send(node.parent, Builder::input(tree));
    else
      b.reduce(sources, {Builder::to(node.parent)});
  };
  auto tell_down = [&](int tree) {
    const TreeNode node = node_in_tree(tree, b.rank(), b.ranks());
    if (node.parent >= 0)
      b.copy(Builder::from(node.parent), with_children(Builder::output(tree), node, same));
  };
  // Up both trees, then down both: messages between two ranks have the same order at both ends.
  // Two ranks are each other's parent, and keep it only tree by tree.
  tell_up(0);
  if (b.ranks() == 2) tell_down(0);
  tell_up(1);
  if (b.ranks() > 2) tell_down(0);
  tell_down(1);
}

void tell_tree_broadcast(Builder& b, const GroupSizes&) {
  const Rooted rooted(b);
  for (int tree = 0; tree < 2; ++tree) {
    if (b.rank() == b.root()) {
      b.copy(Builder::input(tree), {Builder::output(tree), Builder::to(rooted.top(tree))});
      continue;
    }
    const TreeNode node = node_in_tree(tree, rooted.member, rooted.n - 1);
    const int parent = node.parent < 0 ? b.root() : rooted.rank_of(node.parent);
    b.copy(Builder::from(parent),
           with_children(Builder::output(tree), node, [&](int m) { return rooted.rank_of(m); }));
  }
}

void tell_tree_reduce(Builder& b, const GroupSizes&) {
  const Rooted rooted(b);
  for (int tree = 0; tree < 2; ++tree) {
    if (b.rank() == b.root()) {
      b.finish({Builder::input(tree), Builder::from(rooted.top(tree))}, {Builder::output(tree)});
      continue;
    }
    const TreeNode node = node_in_tree(tree, rooted.member, rooted.n - 1);
    const int parent = node.parent < 0 ? b.root() : rooted.rank_of(node.parent);
    const auto sources =
        with_children(Builder::input(tree), node, [&](int m) { return rooted.rank_of(m); });
    if (node.children.empty())
      b.send(parent, Builder::input(tree));
    else
      b.reduce(sources, {Builder::to(parent)});
  }
}

}  // namespace tutti::collectives::algorithms
