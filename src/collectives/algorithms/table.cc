// The table of algorithms: what each is called, when it can serve, how it cuts the data.
#include "collectives/algorithms/table.hpp"

#include <algorithm>
#include <string>

#include "collectives/algorithms/algorithms.hpp"

namespace tutti::collectives {
namespace {

using namespace algorithms;

ScheduleShape plain(Collective collective, int ranks, Rank root) {
  ScheduleShape shape;
  shape.collective = collective;
  shape.ranks = ranks;
  shape.root = root;
  return shape;
}

// One chunk per block.
template <Collective collective>
Result<ScheduleShape> whole(int ranks, Rank root, const GroupSizes&) {
  return plain(collective, ranks, root);
}

// As many chunks per block as ranks.
template <Collective collective>
Result<ScheduleShape> per_rank(int ranks, Rank root, const GroupSizes&) {
  ScheduleShape shape = plain(collective, ranks, root);
  shape.chunks = ranks;
  return shape;
}

// Two chunks, one per tree.
template <Collective collective>
Result<ScheduleShape> two_trees(int ranks, Rank root, const GroupSizes&) {
  ScheduleShape shape = plain(collective, ranks, root);
  shape.chunks = 2;
  return shape;
}

Result<ScheduleShape> halving_doubling(int ranks, Rank root, const GroupSizes&) {
  ScheduleShape shape = plain(Collective::all_reduce, ranks, root);
  shape.chunks = power_of_two_below(ranks);
  // The ranks beyond the power of two send all chunks in one message.
  shape.message_chunks_max = shape.chunks == ranks ? std::max(1, ranks / 2) : shape.chunks;
  return shape;
}

template <Collective collective>
Result<ScheduleShape> power_of_two(int ranks, Rank root, const GroupSizes&) {
  if (power_of_two_below(ranks) != ranks)
    return Status(StatusCode::unsupported, "serves powers of two, not " + std::to_string(ranks) +
                                               " ranks; use ring or direct");
  ScheduleShape shape = plain(collective, ranks, root);
  shape.message_chunks_max = std::max(1, ranks / 2);
  if (collective == Collective::reduce_scatter) shape.scratch_blocks = ranks / 2;
  return shape;
}

// As many chunks as ranks; all but one of them travel together.
Result<ScheduleShape> all_but_one(int ranks, Rank root, const GroupSizes&) {
  ScheduleShape shape = plain(Collective::broadcast, ranks, root);
  shape.chunks = ranks;
  shape.message_chunks_max = std::max(1, ranks - 1);
  return shape;
}

// Every rank's program names all ranks, one by one.
Result<ScheduleShape> one_shot(int ranks, Rank root, const GroupSizes&) {
  constexpr int kRanksMax = 64;
  if (ranks > kRanksMax)
    return Status(StatusCode::unsupported, "serves up to " + std::to_string(kRanksMax) +
                                               " ranks, not " + std::to_string(ranks) +
                                               "; use doubling or tree");
  return plain(Collective::all_reduce, ranks, root);
}

// Messages of up to half of all blocks.
template <Collective collective>
Result<ScheduleShape> halves(int ranks, Rank root, const GroupSizes&) {
  ScheduleShape shape = plain(collective, ranks, root);
  shape.message_chunks_max = std::max(1, ranks / 2);
  return shape;
}

Result<ScheduleShape> bruck_all_to_all(int ranks, Rank root, const GroupSizes& group) {
  Result<ScheduleShape> shape = halves<Collective::all_to_all>(ranks, root, group);
  shape->scratch_blocks = bruck_all_to_all_scratch(ranks);
  return shape;
}

// Inner ranks of a binomial tree hold the blocks of their subtree: at most half of all.
template <Collective collective>
Result<ScheduleShape> subtrees(int ranks, Rank root, const GroupSizes& group) {
  Result<ScheduleShape> shape = halves<collective>(ranks, root, group);
  shape->scratch_blocks = ranks / 2;
  return shape;
}

// Why there are no groups of neighbours, or not at least two of the outermost.
Status need_groups(int ranks, const GroupSizes& groups) {
  const std::span<const int> sizes = groups.sizes();
  const bool small = std::any_of(sizes.begin(), sizes.end(), [](int size) { return size < 2; });
  const int group = groups.outermost();
  if (!sizes.empty() && !small && ranks % group == 0 && ranks / group >= 2) return {};
  return Status(StatusCode::unsupported,
                "needs at least two nodes of equal size with at least two ranks each, not " +
                    std::to_string(ranks) + " ranks with " + (sizes.empty() ? "1" : groups.text()) +
                    " per node");
}

// Leaders' programs name all ranks.
Result<ScheduleShape> leaders_one_shot(int ranks, Rank root, const GroupSizes& groups) {
  const Status status = need_groups(ranks, groups);
  if (!status.ok()) return status;
  return one_shot(ranks, root, groups);
}

// The root says which rank of a group leads.
Result<ScheduleShape> leaders_in_turn(int ranks, Rank root, const GroupSizes& groups) {
  const int group = groups.outermost();
  if (group != 2)
    return Status(StatusCode::unsupported, "serves groups of two ranks, not of " +
                                               std::to_string(group) + "; use leaders_one_shot");
  return leaders_one_shot(ranks, root % group, groups);
}

// A chunk for each leader.
Result<ScheduleShape> leaders_direct(int ranks, Rank root, const GroupSizes& groups) {
  Result<ScheduleShape> shape = leaders_one_shot(ranks, root, groups);
  if (shape.ok()) shape->chunks = ranks / groups.outermost();
  return shape;
}

Result<ScheduleShape> leaders_direct_in_turn(int ranks, Rank root, const GroupSizes& groups) {
  Result<ScheduleShape> shape = leaders_in_turn(ranks, root, groups);
  if (shape.ok()) shape->chunks = ranks / groups.outermost();
  return shape;
}

// Groups within groups.
template <Collective collective>
Result<ScheduleShape> levels(int ranks, Rank root, const GroupSizes& groups) {
  const Status status = need_groups(ranks, groups);
  if (!status.ok()) return status;
  const std::span<const int> sizes = groups.sizes();
  ScheduleShape shape = plain(collective, ranks, root);
  if (collective == Collective::all_reduce) {
    shape.chunks = ranks;
    shape.message_chunks_max = ranks / sizes[0];
  }
  if (collective == Collective::reduce_scatter) shape.scratch_blocks = ranks / sizes[0];
  return shape;
}

// Up to where leaders take turns. Source: 4 ranks on two cores of an EPYC (Zen 5), plain buffers,
// leaders_in_turn, leaders_direct_in_turn and leaders_direct, us: near cores 8 KiB 3.0, 3.1
// and 4.7, 16 KiB 3.8, 3.6 and 5.6, 64 KiB 9.3, 7.0 and 9.4; far ones 8 KiB 5.6, 5.7 and 7.4, 64
// KiB 20, 13.6 and 19.8. The second and `direct`, where copies go by the string instruction: near
// 192 KiB 17.5 and 19.3, 256 KiB 23.1 and 25.4; far ones 34.3 and 35.8, 42.5 and 47. What does not
// go at once is slower: 320 KiB, far, 61 and 57.
constexpr std::size_t kInTurnBytes = 12 << 10;
constexpr std::size_t kDirectInTurnBytes = 256 << 10;

// Up to where groups combine, which is what their memory holds (runtime/combining.hpp).
constexpr std::size_t kCombinedBytes = 128 << 10;

constexpr Algorithm kTable[] = {
    {"direct", Collective::all_reduce, per_rank<Collective::all_reduce>, tell_direct_all_reduce,
     "one pass over all peers: reduce my chunk of all inputs, store it into all outputs", false,
     Meeting::all},
    {"ring", Collective::all_reduce, per_rank<Collective::all_reduce>, tell_ring_all_reduce,
     "reduce-scatter and all-gather around a ring: optimal bandwidth, linear latency"},
    {"tree", Collective::all_reduce, two_trees<Collective::all_reduce>, tell_tree_all_reduce,
     "double binary tree: logarithmic latency at full bandwidth"},
    {"doubling", Collective::all_reduce, whole<Collective::all_reduce>, tell_doubling_all_reduce,
     "recursive doubling: the fewest messages, for small data"},
    {"one_shot", Collective::all_reduce, one_shot, tell_one_shot_all_reduce,
     "everybody reduces everything: every rank waits once, for small data or ranks that share "
     "cores"},
    {"halving_doubling", Collective::all_reduce, halving_doubling, tell_halving_doubling_all_reduce,
     "recursive halving, then doubling: logarithmic latency, optimal bandwidth"},
    {"binomial", Collective::all_reduce, whole<Collective::all_reduce>, tell_binomial_all_reduce,
     "up and down a binomial tree: few messages, for small data in the order of ranks"},
    {"leaders_one_shot", Collective::all_reduce, leaders_one_shot, tell_leaders_one_shot_all_reduce,
     "one rank of each group reduces for it, everybody reduces what those have", true},
    {"leaders_in_turn", Collective::all_reduce, leaders_in_turn, tell_leaders_in_turn_all_reduce,
     "as leaders_one_shot, of groups of two that share a core: who comes second leads", true,
     Meeting::some, false, kInTurnBytes},
    {"combining", Collective::all_reduce, leaders_one_shot, tell_leaders_one_shot_all_reduce,
     "as leaders_one_shot, in memory that all ranks see: who comes last in a group leads", true,
     Meeting::some, false, 0, kCombinedBytes},
    {"leaders_direct", Collective::all_reduce, leaders_direct, tell_leaders_direct_all_reduce,
     "one rank of each group reduces for it, those then go direct, and tell their groups", true},
    {"leaders_direct_in_turn", Collective::all_reduce, leaders_direct_in_turn,
     tell_leaders_direct_in_turn_all_reduce,
     "as leaders_direct, of groups of two that share a core: who comes second leads", true,
     Meeting::some, false, kDirectInTurnBytes},
    {"leaders_in_order", Collective::all_reduce, leaders_direct, tell_leaders_in_order_all_reduce,
     "as leaders_direct, in the order of ranks where groups are powers of two", true, Meeting::some,
     true},
    {"leaders_in_order_in_turn", Collective::all_reduce, leaders_direct_in_turn,
     tell_leaders_in_order_in_turn_all_reduce,
     "as leaders_in_order, of groups of two that share a core: who comes second leads", true,
     Meeting::some, true, kDirectInTurnBytes},
    {"hierarchical", Collective::all_reduce, levels<Collective::all_reduce>,
     tell_hierarchical_all_reduce, "direct inside the node, ring across nodes", true},

    {"direct", Collective::all_gather, whole<Collective::all_gather>, tell_direct_all_gather,
     "one pass over all peers", false, Meeting::all_copies},
    {"ring", Collective::all_gather, whole<Collective::all_gather>, tell_ring_all_gather,
     "blocks travel around a ring"},
    {"doubling", Collective::all_gather, power_of_two<Collective::all_gather>,
     tell_doubling_all_gather, "recursive doubling, powers of two"},
    {"bruck", Collective::all_gather, halves<Collective::all_gather>, tell_bruck_all_gather,
     "Bruck: doubling for any number of ranks"},
    {"hierarchical", Collective::all_gather, levels<Collective::all_gather>,
     tell_hierarchical_all_gather, "ring across nodes, direct inside", true},

    {"direct", Collective::reduce_scatter, whole<Collective::reduce_scatter>,
     tell_direct_reduce_scatter, "one pass over all peers", false, Meeting::all},
    {"ring", Collective::reduce_scatter, whole<Collective::reduce_scatter>,
     tell_ring_reduce_scatter, "partial sums travel around a ring"},
    {"halving", Collective::reduce_scatter, power_of_two<Collective::reduce_scatter>,
     tell_halving_reduce_scatter, "recursive halving, powers of two"},
    {"hierarchical", Collective::reduce_scatter, levels<Collective::reduce_scatter>,
     tell_hierarchical_reduce_scatter, "direct inside the node, ring across nodes", true},

    {"direct", Collective::broadcast, whole<Collective::broadcast>, tell_direct_broadcast,
     "the root serves everybody"},
    {"cooperative", Collective::broadcast, all_but_one, tell_cooperative_broadcast,
     "everybody reads most of it from the root, which stores the rest: all processors copy"},
    {"ring", Collective::broadcast, whole<Collective::broadcast>, tell_ring_broadcast,
     "a chain from the root, slices following each other"},
    {"binomial", Collective::broadcast, whole<Collective::broadcast>, tell_binomial_broadcast,
     "binomial tree: the fewest rounds, for small data"},
    {"tree", Collective::broadcast, two_trees<Collective::broadcast>, tell_tree_broadcast,
     "double binary tree: logarithmic latency at full bandwidth"},
    {"hierarchical", Collective::broadcast, levels<Collective::broadcast>,
     tell_hierarchical_broadcast, "from node to node, then inside each", true},

    {"direct", Collective::reduce, whole<Collective::reduce>, tell_direct_reduce,
     "the root reads everybody's data in one pass"},
    {"cooperative", Collective::reduce, per_rank<Collective::reduce>, tell_cooperative_reduce,
     "everybody reduces a chunk of all inputs, and stores it at the root"},
    {"ring", Collective::reduce, whole<Collective::reduce>, tell_ring_reduce,
     "a chain toward the root, slices following each other"},
    {"binomial", Collective::reduce, whole<Collective::reduce>, tell_binomial_reduce,
     "binomial tree: the fewest rounds, for small data"},
    {"tree", Collective::reduce, two_trees<Collective::reduce>, tell_tree_reduce,
     "double binary tree: logarithmic latency at full bandwidth"},
    {"hierarchical", Collective::reduce, levels<Collective::reduce>, tell_hierarchical_reduce,
     "inside each node, then from node to node", true},

    {"direct", Collective::gather, whole<Collective::gather>, tell_direct_gather,
     "everybody sends to the root"},
    {"binomial", Collective::gather, subtrees<Collective::gather>, tell_binomial_gather,
     "binomial tree: the fewest rounds, for small data"},

    {"direct", Collective::scatter, whole<Collective::scatter>, tell_direct_scatter,
     "the root sends to everybody"},
    {"binomial", Collective::scatter, subtrees<Collective::scatter>, tell_binomial_scatter,
     "binomial tree: the fewest rounds, for small data"},

    {"direct", Collective::all_to_all, whole<Collective::all_to_all>, tell_direct_all_to_all,
     "everything is sent at once", false, Meeting::all_copies},
    {"pairwise", Collective::all_to_all, whole<Collective::all_to_all>, tell_pairwise_all_to_all,
     "one peer after the other, by rotating distance"},
    {"bruck", Collective::all_to_all, bruck_all_to_all, tell_bruck_all_to_all,
     "Bruck: blocks travel by the digits of their distance, for small data"},

    {"shift", Collective::send_recv, whole<Collective::send_recv>, tell_shift,
     "every rank sends to the right and receives from the left"},
    {"dissemination", Collective::barrier, whole<Collective::barrier>, tell_dissemination_barrier,
     "distances double until everybody has heard of everybody"},
};

}  // namespace

std::span<const Algorithm> all_algorithms() { return kTable; }

std::vector<const Algorithm*> algorithms_for(Collective collective) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : kTable)
    if (algorithm.collective == collective) found.push_back(&algorithm);
  return found;
}

Result<const Algorithm*> find_algorithm(Collective collective, std::string_view name) {
  std::string known;
  for (const Algorithm* algorithm : algorithms_for(collective)) {
    if (algorithm->name == name) return algorithm;
    known += " " + std::string(algorithm->name);
  }
  return Status(StatusCode::invalid_argument, "no algorithm '" + std::string(name) + "' for " +
                                                  std::string(to_string(collective)) +
                                                  "; there are:" + known);
}

}  // namespace tutti::collectives
