// Levels: groups within groups, such as the cores of a socket, the sockets of a node and the nodes.
// Inside, links are fast; at the outermost level they are slow, and each rank has its own way out:
// only 1/g of the data of an outermost group of g ranks leaves through each of them.
//
// Ranks are numbered group by group, so that a rank is a number whose digits are its places, the
// innermost first. The group of a level are the ranks that differ in that digit alone. Inner levels
// go direct, the outermost is a ring.
#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives::algorithms {
namespace {

struct Level {
  int size = 1;
  int stride = 1;  // between ranks of the group
  int place = 0;   // of this rank
  int above = 1;   // combinations of places of the levels further out
  Group group;
};

class Levels {
 public:
  Levels(const Builder& b, const GroupSizes& groups) {
    std::vector<int> sizes(groups.sizes().begin(), groups.sizes().end());
    sizes.push_back(b.ranks() / groups.outermost());
    int stride = 1;
    for (const int size : sizes) {
      Level level;
      level.size = size;
      level.stride = stride;
      level.place = b.rank() / stride % size;
      level.above = b.ranks() / (stride * size);
      level.group = b.subgroup(b.rank() - level.place * stride, stride, size);
      stride *= size;
      levels_.push_back(level);
    }
  }

  int inner() const { return static_cast<int>(levels_.size()) - 1; }
  const Level& operator[](int level) const { return levels_[static_cast<std::size_t>(level)]; }
  const Level& outermost() const { return levels_.back(); }

  // The innermost level at which the rank is not at the root's place; outermost where there is none
  // further in. There it gets, or hands on, what its own inner groups share.
  int parting(Rank root) const {
    int level = 0;
    while (level < inner() && (*this)[level].place == place_of(root, level)) ++level;
    return level;
  }
  int place_of(Rank rank, int level) const {
    return rank / (*this)[level].stride % (*this)[level].size;
  }
  // The rank of the group that is at the root's place.
  Rank leader(Rank rank, Rank root, int level) const {
    return rank + (place_of(root, level) - place_of(rank, level)) * (*this)[level].stride;
  }

 private:
  std::vector<Level> levels_;
};

// The others of a level's group, beginning with the right neighbour.
std::vector<Operand> others(const Level& level) {
  std::vector<Operand> operands;
  for (int i = 1; i < level.size; ++i)
    operands.push_back(Builder::from(level.group.rank_of((level.place + i) % level.size)));
  return operands;
}

void append(std::vector<Operand>& operands, const std::vector<Operand>& more) {
  operands.insert(operands.end(), more.begin(), more.end());
}

}  // namespace

// Every level inside reduce-scatters what the ranks share there, the outermost all-reduces what is
// left, then the levels all-gather their way back in. The data is cut into as many chunks as ranks;
// with every level a rank is responsible for fewer of them.
void tell_hierarchical_all_reduce(Builder& b, const GroupSizes& groups) {
  const Levels levels(b, groups);
  std::vector<int> begins = {0};  // of the chunks that the rank is responsible for, by level
  auto part_of = [&](Buffer buffer, int level, AffineIndex place) {
    const int count = levels[level].above;
    return Builder::chunks(buffer, place * count + begins[static_cast<std::size_t>(level)], count);
  };
  for (int l = 0; l < levels.inner(); ++l) {
    const Buffer own = l == 0 ? Buffer::input : Buffer::output;
    direct_reduce_scatter(
        b, levels[l].group, [&](AffineIndex p) { return part_of(own, l, p); },
        part_of(Buffer::output, l, levels[l].place), false);
    begins.push_back(begins.back() + levels[l].place * levels[l].above);
  }
  auto in_mine = [&](AffineIndex j) { return Builder::output(j + begins.back()); };
  ring_all_reduce(b, levels.outermost().group, in_mine, in_mine);
  for (int l = levels.inner() - 1; l >= 0; --l)
    direct_all_gather(b, levels[l].group, part_of(Buffer::output, l, levels[l].place),
                      [&](AffineIndex p) { return part_of(Buffer::output, l, p); });
}

// Innermost: a rank reduces, for every group, the block of the rank there that is at its own place,
// into scratch. From level to level it goes on with those of them that are at its place there, too.
void tell_hierarchical_reduce_scatter(Builder& b, const GroupSizes& groups) {
  const Levels levels(b, groups);
  const int g = levels[0].size;
  for (int k = 0; k < levels[0].above; ++k)
    direct_reduce_scatter(
        b, levels[0].group, [&](AffineIndex p) { return Builder::input(p + k * g); },
        Builder::scratch(k), false);
  int begin = 0;
  for (int l = 1; l < levels.inner(); ++l) {
    const Level& level = levels[l];
    const int stride = level.stride / g;  // scratch leaves out the innermost digit
    for (int u = 0; u < level.above; ++u) {
      const int first = begin + u * stride * level.size;
      direct_reduce_scatter(
          b, level.group, [&](AffineIndex p) { return Builder::scratch(p * stride + first); },
          Builder::scratch(level.place * stride + first), false);
    }
    begin += level.place * stride;
  }
  const int stride = levels.outermost().stride / g;
  ring_reduce_scatter(
      b, levels.outermost().group,
      [&](AffineIndex k) { return Builder::scratch(k * stride + begin); }, Builder::output(0));
}

// Outermost, the ranks at the same places collect their blocks. From there inwards, every rank
// hands on to its group all that it has.
void tell_hierarchical_all_gather(Builder& b, const GroupSizes& groups) {
  const Levels levels(b, groups);
  const Level& top = levels.outermost();
  const int inside = b.rank() % top.stride;
  ring_all_gather(b, top.group, Builder::input(0),
                  [&](AffineIndex k) { return Builder::output(k * top.stride + inside); });
  for (int l = levels.inner() - 1; l >= 0; --l) {
    const Level& level = levels[l];
    for (int u = 0; u < level.above; ++u) {
      auto block = [&](int place) {
        return Builder::output(b.rank() % level.stride + (place + u * level.size) * level.stride);
      };
      for (int i = 1; i < level.size; ++i) {
        const int right = (level.place + i) % level.size;
        const int left = (level.place - i + level.size) % level.size;
        b.send(level.group.rank_of(right), block(level.place));
        b.recv(level.group.rank_of(left), block(left));
      }
    }
  }
}

// Along the ranks at the root's inner places, from one outermost group to the next; then from each
// of those to its groups, from the outside in.
void tell_hierarchical_broadcast(Builder& b, const GroupSizes& groups) {
  const Levels levels(b, groups);
  const Level& top = levels.outermost();
  const int parting = levels.parting(b.root());
  std::vector<Operand> destinations = {Builder::output(0)};
  const int distance =
      (top.place - levels.place_of(b.root(), levels.inner()) + top.size) % top.size;
  if (parting == levels.inner() && distance + 1 < top.size)
    destinations.push_back(Builder::to((b.rank() + top.stride) % b.ranks()));
  for (int l = parting - 1; l >= 0; --l) append(destinations, others(levels[l]));
  const Rank from = parting == levels.inner() ? (b.rank() - top.stride + b.ranks()) % b.ranks()
                                              : levels.leader(b.rank(), b.root(), parting);
  const bool is_root = b.rank() == b.root();
  b.copy(is_root ? Builder::input(0) : Builder::from(from), destinations);
}

// The same backwards: groups reduce into their ranks at the root's places, from the inside out.
void tell_hierarchical_reduce(Builder& b, const GroupSizes& groups) {
  const Levels levels(b, groups);
  const Level& top = levels.outermost();
  const int parting = levels.parting(b.root());
  std::vector<Operand> sources = {Builder::input(0)};
  for (int l = 0; l < parting; ++l) append(sources, others(levels[l]));
  const int distance =
      (levels.place_of(b.root(), levels.inner()) - top.place + top.size) % top.size;
  if (parting == levels.inner() && distance + 1 < top.size)
    sources.push_back(Builder::from((b.rank() - top.stride + b.ranks()) % b.ranks()));
  if (b.rank() == b.root()) return b.finish(sources, {Builder::output(0)});
  const Rank to = parting == levels.inner() ? (b.rank() + top.stride) % b.ranks()
                                            : levels.leader(b.rank(), b.root(), parting);
  if (sources.size() == 1) return b.send(to, Builder::input(0));
  b.reduce(sources, {Builder::to(to)});
}

}  // namespace tutti::collectives::algorithms
