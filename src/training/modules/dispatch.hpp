// dispatch.hpp: the way of rows to the experts that they are routed to, on whichever
// expert-parallel rank these are, and back. The way back of values is the way there of gradients,
// and the other way round, with the same handle.
//
// Only what is routed travels: a row that goes to two experts goes twice, one that none takes not
// at all. Knows nothing of what experts compute, nor why a row goes where it goes.
#pragma once

#include <cstdint>
#include <vector>

#include "training/modules/module.hpp"
#include "training/ops/routing.hpp"

namespace tutti::training {

// How many rows each expert of this rank has from each expert-parallel rank. Rows lie by (expert,
// source, row at the source).
struct ExpertRows {
  std::int64_t sources = 1;
  std::vector<std::int64_t> counts;  // [experts here, sources]

  std::int64_t experts() const { return static_cast<std::int64_t>(counts.size()) / sources; }
  std::int64_t of(std::int64_t expert, std::int64_t source) const {
    return counts[static_cast<std::size_t>(expert * sources + source)];
  }
  std::int64_t of(std::int64_t expert) const;
  std::int64_t total() const;
};

// What both ways need to know of one micro-batch.
struct DispatchHandle {
  Placement placement;  // of this rank's assignments among the rows that it sends
  std::vector<std::int64_t> sent_rows, received_rows;  // to and from each rank
  ExpertRows arrived;
  std::int64_t dropped = 0;  // assignments that an expert had no room for
};

// The most rows that an expert takes of a micro-batch on one rank, by its fair share of them;
// without limit if the factor is 0.
std::int64_t expert_capacity(const Routing& routing, double capacity_factor);

// Decides who sends what. Expert e is on rank e / (experts / ep); of rows beyond `capacity`, the
// later ones are dropped.
// Blocking  until each rank of `context.ep` has told the others what comes.
// Requires  ep divides the number of experts.
DispatchHandle plan_dispatch(const Context& context, const Routing& routing, std::int64_t capacity);

// Sends each assignment's row of x: [rows, size], times its weight, to its expert. The result:
// [arrived rows, size], see ExpertRows. Weights: [rows, per_row], or empty: ones.
Tensor dispatch(const Context& context, const Tensor& x, const DispatchHandle& handle,
                const Tensor& weights = {});

// Brings what experts made of the rows that arrived, [arrived rows, size], back to where these came
// from: [sent rows, size], placed as the handle says.
Tensor bring_back(const Context& context, const Tensor& y, const DispatchHandle& handle);

// Brings them back and adds those of a row: [rows, size].
Tensor combine(const Context& context, const Tensor& y, const DispatchHandle& handle,
               const Tensor& weights = {});

}  // namespace tutti::training
