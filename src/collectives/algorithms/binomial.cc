// The binomial tree: ⌈log2 n⌉ rounds, in which the root talks to ⌈log2 n⌉ ranks instead of n-1, for
// small data and many ranks. One rank's data to all (broadcast), all to one (reduce), and block by
// block (scatter, gather), where a block travels up to ⌈log2 n⌉ hops.
// Source: Chan, Heimlich, Purkayastha, van de Geijn, Collective communication: theory, practice,
// and experience (2007), minimum-spanning-tree algorithms.
//
// Places count from the root. A place's parent lacks its lowest set bit; its subtree are the places
// up to that bit further on, whose blocks it holds in scratch, its own first.
#include <algorithm>

#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {
namespace {

struct Range {
  int begin = 0;  // places
  int end = 0;
  int count() const { return end - begin; }
};

class Tree {
 public:
  explicit Tree(const Builder& b) : n_(b.ranks()), root_(b.root()) {
    place_ = (b.rank() - root_ + n_) % n_;
    reach_ = place_ == 0 ? power_of_two_below(2 * n_ - 1) : place_ & -place_;
  }

  bool is_root() const { return place_ == 0; }
  int rank_at(int place) const { return (place + root_) % n_; }
  int parent() const { return rank_at(place_ - reach_); }
  bool parent_is_root() const { return place_ == reach_; }
  Range subtree() const { return {place_, std::min(place_ + reach_, n_)}; }
  bool is_leaf() const { return subtree().count() == 1; }

  // The subtrees below, the nearest first.
  std::vector<Range> children() const {
    std::vector<Range> found;
    for (int distance = 1; distance < reach_ && place_ + distance < n_; distance *= 2)
      found.push_back({place_ + distance, std::min(place_ + 2 * distance, n_)});
    return found;
  }

  // The root keeps blocks in the order of ranks, which a range of places may run around once. Both
  // ends of a message cut it there.
  std::vector<Range> as_root_sees(const Range& places) const {
    const int around = n_ - root_;
    if (places.begin >= around || places.end <= around) return {places};
    return {{places.begin, around}, {around, places.end}};
  }

  // Where a rank that is not the root holds the blocks of `places`.
  Operand held(const Range& places) const {
    return Builder::scratch(places.begin - place_, places.count());
  }

 private:
  int n_;
  int root_;
  int place_ = 0;
  int reach_ = 1;  // how many places its subtree may have
};

}  // namespace

void tell_binomial_broadcast(Builder& b, const GroupSizes&) {
  const Tree tree(b);
  std::vector<Range> children = tree.children();
  std::reverse(children.begin(), children.end());  // the largest subtree has the longest way
  std::vector<Operand> destinations = {Builder::output(0)};
  for (const Range& child : children)
    destinations.push_back(Builder::to(tree.rank_at(child.begin)));
  b.copy(tree.is_root() ? Builder::input(0) : Builder::from(tree.parent()), destinations);
}

void tell_binomial_reduce(Builder& b, const GroupSizes&) {
  const Tree tree(b);
  std::vector<Operand> sources = {Builder::input(0)};
  for (const Range& child : tree.children())
    sources.push_back(Builder::from(tree.rank_at(child.begin)));
  if (tree.is_root()) return b.finish(sources, {Builder::output(0)});
  if (tree.is_leaf()) return b.send(tree.parent(), Builder::input(0));
  b.reduce(sources, {Builder::to(tree.parent())});
}

// The children's sums are added one by one, the nearest child's first: then every partial sum is
// one of the canonical tree over the ranks (verifier_expression.hpp), whose shape this tree has.
void tell_binomial_all_reduce(Builder& b, const GroupSizes&) {
  const Tree tree(b);
  std::vector<Range> children = tree.children();
  Operand current = Builder::input(0);
  std::vector<Operand> below = {Builder::output(0)};
  for (auto child = children.rbegin(); child != children.rend(); ++child)
    below.push_back(Builder::to(tree.rank_at(child->begin)));
  for (const Range& child : children) {
    const std::vector<Operand> sources = {current, Builder::from(tree.rank_at(child.begin))};
    const bool last = child.begin == children.back().begin;
    if (last && tree.is_root()) return b.finish(sources, below);
    if (last)
      b.reduce(sources, {Builder::to(tree.parent())});
    else
      b.reduce(sources, {Builder::output(0)});
    current = Builder::output(0);
  }
  if (tree.is_leaf()) b.send(tree.parent(), Builder::input(0));
  b.copy(Builder::from(tree.parent()), below);
}

void tell_binomial_gather(Builder& b, const GroupSizes&) {
  const Tree tree(b);
  if (tree.is_root()) {
    b.copy(Builder::input(0), {Builder::output(b.root())});
    for (const Range& child : tree.children())
      for (const Range& part : tree.as_root_sees(child))
        b.recv(tree.rank_at(child.begin), Builder::output(tree.rank_at(part.begin), part.count()));
    return;
  }
  if (tree.is_leaf()) return b.send(tree.parent(), Builder::input(0));
  b.copy(Builder::input(0), {Builder::scratch(0)});
  for (const Range& child : tree.children()) b.recv(tree.rank_at(child.begin), tree.held(child));
  if (!tree.parent_is_root()) return b.send(tree.parent(), tree.held(tree.subtree()));
  for (const Range& part : tree.as_root_sees(tree.subtree()))
    b.send(tree.parent(), tree.held(part));
}

void tell_binomial_scatter(Builder& b, const GroupSizes&) {
  const Tree tree(b);
  std::vector<Range> children = tree.children();
  std::reverse(children.begin(), children.end());  // the largest subtree has the longest way
  if (tree.is_root()) {
    for (const Range& child : children)
      for (const Range& part : tree.as_root_sees(child))
        b.send(tree.rank_at(child.begin), Builder::input(tree.rank_at(part.begin), part.count()));
    return b.copy(Builder::input(b.root()), {Builder::output(0)});
  }
  if (tree.is_leaf()) return b.recv(tree.parent(), Builder::output(0));
  if (tree.parent_is_root()) {
    for (const Range& part : tree.as_root_sees(tree.subtree()))
      b.recv(tree.parent(), tree.held(part));
  } else {
    b.recv(tree.parent(), tree.held(tree.subtree()));
  }
  for (const Range& child : children) b.send(tree.rank_at(child.begin), tree.held(child));
  b.copy(Builder::scratch(0), {Builder::output(0)});
}

}  // namespace tutti::collectives::algorithms
