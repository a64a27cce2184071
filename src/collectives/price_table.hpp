// price_table.hpp: what a schedule costs at any size of its chunks, from what it costs at a few:
// the model is walked for those once, when they are first needed, and lines lie between them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/cost.hpp"
#include "collectives/footprint.hpp"

namespace tutti::collectives {

// Costs of one schedule in one lowering, by chunk size.
class PriceTable {
 public:
  explicit PriceTable(CostGraph graph) : graph_(std::move(graph)) {}

  // Every second call has this one.
  void alternate_with(CostGraph graph) { odd_ = std::move(graph); }
  bool alternates() const { return odd_.has_value(); }

  const CostGraph& graph() const { return graph_; }
  std::size_t memory_bytes() const {
    return graph_.memory_bytes() + (odd_ ? odd_->memory_bytes() : 0) + bytes_of(points_[0]) +
           bytes_of(points_[1]);
  }

  // What of the busiest resource's time is not spent on bytes.
  double overhead_ns(const Machine& machine) { return point(machine, 0, DataIn::memory).busy_ns; }

  SliceCost at(const Machine& machine, double chunk_bytes, DataIn where) {
    std::size_t upper = 1;
    while (point_bytes(upper) < chunk_bytes) ++upper;
    // Copies: pricing the second point may move the first.
    const SliceCost low = point(machine, upper - 1, where);
    SliceCost cost = point(machine, upper, where);
    const double share =
        (chunk_bytes - point_bytes(upper - 1)) / (point_bytes(upper) - point_bytes(upper - 1));
    cost.time_ns = low.time_ns + share * (cost.time_ns - low.time_ns);
    cost.busy_ns = low.busy_ns + share * (cost.busy_ns - low.busy_ns);
    return cost;
  }

 private:
  // Chunk sizes at which schedules are priced: 0, 64, 256, ... bytes.
  static constexpr std::size_t kFirstPoint = 64;
  static constexpr std::size_t kPointFactor = 4;

  static double point_bytes(std::size_t number) {
    if (number == 0) return 0;
    return static_cast<double>(kFirstPoint) *
           std::pow(static_cast<double>(kPointFactor), static_cast<double>(number - 1));
  }

  const SliceCost& point(const Machine& machine, std::size_t number, DataIn where) {
    auto& points = points_[static_cast<std::size_t>(where)];
    if (points.size() <= number) points.resize(number + 1);
    if (!points[number])
      points[number] = graph_.price(machine, point_bytes(number), where, odd_ ? &*odd_ : nullptr);
    return *points[number];
  }

  CostGraph graph_;
  std::optional<CostGraph> odd_;
  std::array<std::vector<std::optional<SliceCost>>, 2> points_;  // by DataIn
};

}  // namespace tutti::collectives
