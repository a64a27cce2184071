// dispatch.cc: who sends which rows; see dispatch.hpp.
//
// Rows travel in the order (peer, expert of the peer, row), which is the order in which they are
// numbered here by expert and row, since experts are numbered by rank. They arrive by (source,
// expert, row) and are put in the order (expert, source, row) that experts work in.
#include "training/modules/dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace tutti::training {
namespace {

// Numbers assignments by (expert, row), but for those beyond an expert's capacity.
// The result: how many rows each expert takes.
std::vector<std::int64_t> place_assignments(const Routing& routing, std::int64_t capacity,
                                            DispatchHandle& handle) {
  std::vector<std::int64_t> taken = routing.load();
  for (std::int64_t& count : taken) {
    handle.dropped += std::max<std::int64_t>(count - capacity, 0);
    count = std::min(count, capacity);
  }
  std::vector<std::int64_t> next(taken.size()), end(taken.size());
  std::exclusive_scan(taken.begin(), taken.end(), next.begin(), std::int64_t{0});
  std::inclusive_scan(taken.begin(), taken.end(), end.begin());

  handle.placement.per_row = routing.per_row;
  handle.placement.positions.reserve(routing.chosen.size());
  for (const std::int32_t expert : routing.chosen) {
    const auto e = static_cast<std::size_t>(expert);
    handle.placement.positions.push_back(next[e] < end[e] ? next[e]++ : Placement::kDropped);
  }
  return taken;
}

// Tells each rank how many rows come for each of its experts, and is told.
void exchange(const Context& context, const std::vector<std::int64_t>& taken,
              DispatchHandle& handle) {
  const auto ranks = static_cast<std::size_t>(context.ep.size());
  const std::size_t here = taken.size() / ranks;
  handle.arrived.sources = context.ep.size();
  handle.arrived.counts.assign(taken.size(), 0);
  std::vector<std::int64_t> sent(ranks);
  for (std::size_t e = 0; e < here; ++e) {
    for (std::size_t p = 0; p < ranks; ++p) sent[p] = taken[p * here + e];
    context.ep.exchange_counts(sent, std::span(handle.arrived.counts).subspan(e * ranks, ranks));
  }
  // What an axis that has failed wrote there is nothing to allocate by.
  if (!context.ep.status().ok()) handle.arrived.counts.assign(taken.size(), 0);

  handle.sent_rows.assign(ranks, 0);
  handle.received_rows.assign(ranks, 0);
  for (std::size_t p = 0; p < ranks; ++p)
    for (std::size_t e = 0; e < here; ++e) {
      const std::int64_t comes = handle.arrived.counts[e * ranks + p];
      TRAINING_CHECK(comes >= 0, "a rank sends no fewer than no rows");
      handle.sent_rows[p] += taken[p * here + e];
      handle.received_rows[p] += comes;
    }
}

enum class Reorder : unsigned char {
  by_expert,  // from (source, expert, row) to (expert, source, row)
  by_source,  // back
};

// Whether the two orders are one.
bool is_in_order(const ExpertRows& rows) { return rows.sources == 1 || rows.experts() == 1; }

Tensor reordered(const Context& context, const Tensor& from, const ExpertRows& rows,
                 Reorder reorder) {
  if (is_in_order(rows)) return from;
  const Tensor to(context.arena, MemoryKind::communication, from.type(), from.shape());
  const std::size_t row_bytes = static_cast<std::size_t>(from.columns()) * size_of(from.type());
  std::size_t by_source = 0;
  for (std::int64_t s = 0; s < rows.sources; ++s) {
    for (std::int64_t e = 0; e < rows.experts(); ++e) {
      std::int64_t before = 0;  // rows of earlier experts, and of this one from earlier sources
      for (std::int64_t i = 0; i < e * rows.sources + s; ++i)
        before += rows.counts[static_cast<std::size_t>(i)];
      const std::size_t by_expert = static_cast<std::size_t>(before) * row_bytes;
      const std::size_t bytes = static_cast<std::size_t>(rows.of(e, s)) * row_bytes;
      const bool forth = reorder == Reorder::by_expert;
      if (bytes > 0)
        std::memcpy(to.data() + (forth ? by_expert : by_source),
                    from.data() + (forth ? by_source : by_expert), bytes);
      by_source += bytes;
    }
  }
  return to;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Rows that travel, and the memory for them.
Tensor travelling(const Context& context, std::int64_t rows, std::int64_t size) {
  return Tensor(context.arena, MemoryKind::communication, context.type, {rows, size});
}

}  // namespace

std::int64_t ExpertRows::of(std::int64_t expert) const {
  const auto first = counts.begin() + expert * sources;
  return std::accumulate(first, first + sources, std::int64_t{0});
}

std::int64_t ExpertRows::total() const { return training::total(counts); }

std::int64_t expert_capacity(const Routing& routing, double capacity_factor) {
  if (capacity_factor == 0) return std::numeric_limits<std::int64_t>::max();
  const auto assignments = static_cast<double>(routing.rows * routing.per_row);
  const double share = capacity_factor * assignments / static_cast<double>(routing.experts);
  // An expert takes no row twice, so that a capacity beyond the number of rows is none.
  return static_cast<std::int64_t>(std::ceil(std::min(share, static_cast<double>(routing.rows))));
}

DispatchHandle plan_dispatch(const Context& context, const Routing& routing,
                             std::int64_t capacity) {
  TRAINING_CHECK(routing.experts % context.ep.size() == 0, "each rank has as many experts");
  DispatchHandle handle;
  const std::vector<std::int64_t> taken = place_assignments(routing, capacity, handle);
  exchange(context, taken, handle);
  return handle;
}

Tensor dispatch(const Context& context, const Tensor& x, const DispatchHandle& handle,
                const Tensor& weights) {
  const Tensor sent = travelling(context, total(handle.sent_rows), x.columns());
  place_rows(x, handle.placement, weights, sent);
  if (context.ep.size() == 1) return sent;
  const Tensor received = travelling(context, handle.arrived.total(), x.columns());
  context.ep.all_to_all_rows(sent, handle.sent_rows, received, handle.received_rows);
  return reordered(context, received, handle.arrived, Reorder::by_expert);
}

Tensor bring_back(const Context& context, const Tensor& y, const DispatchHandle& handle) {
  if (context.ep.size() == 1) return y;
  const Tensor sent = reordered(context, y, handle.arrived, Reorder::by_source);
  const Tensor received = travelling(context, total(handle.sent_rows), y.columns());
  context.ep.all_to_all_rows(sent, handle.received_rows, received, handle.sent_rows);
  return received;
}

Tensor combine(const Context& context, const Tensor& y, const DispatchHandle& handle,
               const Tensor& weights) {
  const Tensor placed = bring_back(context, y, handle);
  const Tensor sums = context.activation({handle.placement.rows(), y.columns()});
  sum_slots(placed, handle.placement, weights, sums);
  return sums;
}

}  // namespace tutti::training
