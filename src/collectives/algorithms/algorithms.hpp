// algorithms.hpp: the tellings that the table lists and that compose each other.
//
// A flat algorithm is one `tell_*` function. Those that also serve inside a node or across nodes
// are written for a Group and for two ways of naming chunks: where this rank's own contribution of
// chunk j lies, and where the result of chunk j goes.
#pragma once

#include <functional>

#include "collectives/builder.hpp"

namespace tutti::collectives::algorithms {

// Names a range of chunks, given a number 0 .. group.size-1 (symbolic or plain).
using ChunkOf = std::function<Operand(AffineIndex)>;

// ---- ring.cc ----
void ring_all_reduce(Builder& b, const Group& group, const ChunkOf& own, const ChunkOf& result);
void ring_reduce_scatter(Builder& b, const Group& group, const ChunkOf& own, const Operand& result);
void ring_all_gather(Builder& b, const Group& group, const Operand& own, const ChunkOf& result);
void tell_ring_all_reduce(Builder& b, const GroupSizes& group);
void tell_ring_reduce_scatter(Builder& b, const GroupSizes& group);
void tell_ring_all_gather(Builder& b, const GroupSizes& group);
void tell_ring_broadcast(Builder& b, const GroupSizes& group);
void tell_ring_reduce(Builder& b, const GroupSizes& group);

// ---- direct.cc ----
void direct_reduce_scatter(Builder& b, const Group& group, const ChunkOf& own,
                           const Operand& result, bool finish);
void direct_all_gather(Builder& b, const Group& group, const Operand& own, const ChunkOf& result);
void tell_direct_all_reduce(Builder& b, const GroupSizes& group);
void tell_one_shot_all_reduce(Builder& b, const GroupSizes& group);
void tell_direct_reduce_scatter(Builder& b, const GroupSizes& group);
void tell_direct_all_gather(Builder& b, const GroupSizes& group);
void tell_direct_broadcast(Builder& b, const GroupSizes& group);
void tell_cooperative_broadcast(Builder& b, const GroupSizes& group);
void tell_direct_reduce(Builder& b, const GroupSizes& group);
void tell_cooperative_reduce(Builder& b, const GroupSizes& group);
void tell_direct_gather(Builder& b, const GroupSizes& group);
void tell_direct_scatter(Builder& b, const GroupSizes& group);
void tell_direct_all_to_all(Builder& b, const GroupSizes& group);

// ---- halving_doubling.cc ----
void tell_doubling_all_reduce(Builder& b, const GroupSizes& group);
void tell_halving_doubling_all_reduce(Builder& b, const GroupSizes& group);
void tell_halving_reduce_scatter(Builder& b, const GroupSizes& group);
void tell_doubling_all_gather(Builder& b, const GroupSizes& group);

// ---- bruck.cc ----
void tell_bruck_all_gather(Builder& b, const GroupSizes& group);
void tell_bruck_all_to_all(Builder& b, const GroupSizes& group);
int bruck_all_to_all_scratch(int ranks);  // blocks

// ---- binomial.cc ----
void tell_binomial_broadcast(Builder& b, const GroupSizes& group);
void tell_binomial_reduce(Builder& b, const GroupSizes& group);
void tell_binomial_all_reduce(Builder& b, const GroupSizes& group);
void tell_binomial_gather(Builder& b, const GroupSizes& group);
void tell_binomial_scatter(Builder& b, const GroupSizes& group);

// ---- leaders.cc ----
void tell_leaders_one_shot_all_reduce(Builder& b, const GroupSizes& group);
void tell_leaders_in_turn_all_reduce(Builder& b, const GroupSizes& group);
void tell_leaders_direct_in_turn_all_reduce(Builder& b, const GroupSizes& group);
void tell_leaders_in_order_in_turn_all_reduce(Builder& b, const GroupSizes& group);
void tell_leaders_direct_all_reduce(Builder& b, const GroupSizes& group);
void tell_leaders_in_order_all_reduce(Builder& b, const GroupSizes& group);

// ---- tree.cc ----
void tell_tree_all_reduce(Builder& b, const GroupSizes& group);
void tell_tree_broadcast(Builder& b, const GroupSizes& group);
void tell_tree_reduce(Builder& b, const GroupSizes& group);

// ---- pairwise.cc ----
void tell_pairwise_all_to_all(Builder& b, const GroupSizes& group);
void tell_shift(Builder& b, const GroupSizes& group);
void tell_dissemination_barrier(Builder& b, const GroupSizes& group);

// ---- hierarchical.cc ----
void tell_hierarchical_all_reduce(Builder& b, const GroupSizes& group);
void tell_hierarchical_reduce_scatter(Builder& b, const GroupSizes& group);
void tell_hierarchical_all_gather(Builder& b, const GroupSizes& group);
void tell_hierarchical_broadcast(Builder& b, const GroupSizes& group);
void tell_hierarchical_reduce(Builder& b, const GroupSizes& group);

// The largest power of two that is at most n.
int power_of_two_below(int n);

}  // namespace tutti::collectives::algorithms
