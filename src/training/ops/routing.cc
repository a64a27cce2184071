// routing.cc: the choice of experts row by row, and row arithmetic in vectors; see routing.hpp.
#include "training/ops/routing.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "training/ops/targets.hpp"
#include "training/tensor/element.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/ops/routing.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "training/ops/vector_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {

// The weight of an assignment, or 1.
template <typename W>
W weight_at(const Tensor& weights, std::size_t assignment) {
  return weights.empty() ? W{1} : weights.as<W>()[assignment];
}

template <typename T>
void place_as(const Tensor& x, const Placement& placement, const Tensor& weights,
              const Tensor& placed) {
  const std::int64_t size = x.columns();
  for (std::size_t a = 0; a < placement.positions.size(); ++a) {
    if (placement.positions[a] == Placement::kDropped) continue;
    const T* from = x.as<T>() + static_cast<std::int64_t>(a) / placement.per_row * size;
    T* to = placed.as<T>() + placement.positions[a] * size;
    const auto weight = hn::Set(Lanes<T>(), weight_at<Wide<T>>(weights, a));
    for_vectors<T>(size, [&](std::int64_t i, std::int64_t n) HWY_ATTR {
      store_lanes(hn::Mul(weight, load_lanes(from + i, n)), to + i, n);
    });
  }
}

template <typename T>
void sum_as(const Tensor& placed, const Placement& placement, const Tensor& weights,
            const Tensor& y) {
  const std::int64_t size = y.columns();
  for (std::int64_t row = 0; row < y.rows(); ++row) {
    const auto first = static_cast<std::size_t>(row * placement.per_row);
    const auto end = first + static_cast<std::size_t>(placement.per_row);
    for_vectors<T>(size, [&](std::int64_t i, std::int64_t n) HWY_ATTR {
      auto sum = hn::Zero(Lanes<T>());
      for (std::size_t a = first; a < end; ++a) {
        if (placement.positions[a] == Placement::kDropped) continue;
        const T* from = placed.as<T>() + placement.positions[a] * size;
        const auto weight = hn::Set(Lanes<T>(), weight_at<Wide<T>>(weights, a));
        sum = hn::MulAdd(weight, load_lanes(from + i, n), sum);
      }
      store_lanes(sum, y.as<T>() + row * size + i, n);
    });
  }
}

template <typename T>
void products_as(const Tensor& placed, const Placement& placement, const Tensor& dy,
                 const Tensor& dweights) {
  const std::int64_t size = dy.columns();
  for (std::size_t a = 0; a < placement.positions.size(); ++a) {
    Wide<T>& product = dweights.as<Wide<T>>()[a];
    product = 0;
    if (placement.positions[a] == Placement::kDropped) continue;
    const T* gradient = dy.as<T>() + static_cast<std::int64_t>(a) / placement.per_row * size;
    const T* value = placed.as<T>() + placement.positions[a] * size;
    auto sum = hn::Zero(Lanes<T>());
    for_vectors<T>(size, [&](std::int64_t i, std::int64_t n) HWY_ATTR {
      sum = hn::MulAdd(load_lanes(gradient + i, n), load_lanes(value + i, n), sum);
    });
    product = sum_lanes<T>(sum);
  }
}

void place(const Tensor& x, const Placement& placement, const Tensor& weights,
           const Tensor& placed) {
  visit(x.type(), [&](auto zero) { place_as<decltype(zero)>(x, placement, weights, placed); });
}

void sum(const Tensor& placed, const Placement& placement, const Tensor& weights, const Tensor& y) {
  visit(y.type(), [&](auto zero) { sum_as<decltype(zero)>(placed, placement, weights, y); });
}

void products(const Tensor& placed, const Placement& placement, const Tensor& dy,
              const Tensor& dweights) {
  visit(dy.type(),
        [&](auto zero) { products_as<decltype(zero)>(placed, placement, dy, dweights); });
}

}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::training {
namespace {

HWY_EXPORT(place);
HWY_EXPORT(sum);
HWY_EXPORT(products);

template <typename W>
void softmax_row(std::span<const W> logits, W* probabilities) {
  const W largest = *std::max_element(logits.begin(), logits.end());
  W sum = 0;
  for (std::size_t e = 0; e < logits.size(); ++e)
    sum += probabilities[e] = std::exp(logits[e] - largest);
  for (std::size_t e = 0; e < logits.size(); ++e) probabilities[e] /= sum;
}

// The next slot's expert: the most probable of those that no slot has yet. Always one of them, even
// if probabilities are no numbers.
template <typename W>
std::int32_t next_choice(std::span<const W> probabilities, std::span<const std::int32_t> taken) {
  std::int32_t best = -1;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(probabilities.size()); ++e) {
    if (std::find(taken.begin(), taken.end(), e) != taken.end()) continue;
    if (best < 0 ||
        probabilities[static_cast<std::size_t>(e)] > probabilities[static_cast<std::size_t>(best)])
      best = e;
  }
  return best;
}

template <typename W>
void choose_row(std::span<const W> probabilities, std::span<std::int32_t> chosen, W* weights) {
  W sum = 0;
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    chosen[s] = next_choice(probabilities, chosen.first(s));
    sum += weights[s] = probabilities[static_cast<std::size_t>(chosen[s])];
  }
  for (std::size_t s = 0; s < chosen.size(); ++s) weights[s] /= sum;
}

// One row's gradient: of weights to probabilities, whose gradients by the balance loss are already
// in `gradient`, and from there to logits.
template <typename W>
void backward_row(std::span<const W> probabilities, std::span<const std::int32_t> chosen,
                  const W* weights, const W* dweights, std::span<W> gradient) {
  W chosen_sum = 0, mean = 0;
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    chosen_sum += probabilities[static_cast<std::size_t>(chosen[s])];
    mean += dweights[s] * weights[s];
  }
  for (std::size_t s = 0; s < chosen.size(); ++s)
    gradient[static_cast<std::size_t>(chosen[s])] += (dweights[s] - mean) / chosen_sum;
  W total = 0;
  for (std::size_t e = 0; e < probabilities.size(); ++e) total += gradient[e] * probabilities[e];
  for (std::size_t e = 0; e < probabilities.size(); ++e)
    gradient[e] = probabilities[e] * (gradient[e] - total);
}

// A row of a matrix.
template <typename W>
std::span<W> row_of(const Tensor& matrix, std::int64_t row) {
  return matrix.span<W>().subspan(static_cast<std::size_t>(row * matrix.columns()),
                                  static_cast<std::size_t>(matrix.columns()));
}

template <typename Chosen>
auto slots_of(Chosen& chosen, std::int64_t row, std::int64_t per_row) {
  return std::span(chosen).subspan(static_cast<std::size_t>(row * per_row),
                                   static_cast<std::size_t>(per_row));
}

template <typename W>
void choose_as(const Tensor& logits, Routing& routing) {
  for (std::int64_t row = 0; row < routing.rows; ++row) {
    const std::span<W> probabilities = row_of<W>(routing.probabilities, row);
    softmax_row<W>(row_of<W>(logits, row), probabilities.data());
    choose_row<W>(probabilities, slots_of(routing.chosen, row, routing.per_row),
                  routing.weights.as<W>() + row * routing.per_row);
  }
}

template <typename W>
void backward_as(const Routing& routing, const Tensor& dweights, double balance_scale,
                 const Tensor& dlogits) {
  if (routing.rows == 0) return;
  // Of experts * sum of fraction * mean over rows: one row's share by each probability.
  std::vector<W> balance;
  const auto assignments = static_cast<double>(routing.rows * routing.per_row);
  const double share =
      balance_scale * static_cast<double>(routing.experts) / static_cast<double>(routing.rows);
  for (const std::int64_t load : routing.load())
    balance.push_back(static_cast<W>(share * static_cast<double>(load) / assignments));
  for (std::int64_t row = 0; row < routing.rows; ++row) {
    const std::span<W> gradient = row_of<W>(dlogits, row);
    std::copy(balance.begin(), balance.end(), gradient.begin());
    backward_row<W>(row_of<W>(routing.probabilities, row),
                    slots_of(routing.chosen, row, routing.per_row),
                    routing.weights.as<W>() + row * routing.per_row,
                    dweights.as<W>() + row * routing.per_row, gradient);
  }
}

}  // namespace

std::vector<std::int64_t> Routing::load() const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts));
  for (const std::int32_t expert : chosen) ++counts[static_cast<std::size_t>(expert)];
  return counts;
}

Routing choose_experts(const Tensor& logits, std::int64_t per_row, Arena& arena) {
  const DataType type = logits.type();
  Routing routing;
  routing.rows = logits.shape()[0];
  routing.experts = logits.shape()[1];
  routing.per_row = per_row;
  TRAINING_CHECK(per_row >= 1 && per_row <= routing.experts, "each slot has another expert");
  TRAINING_CHECK(type == wide_type(type), "experts are chosen with all digits");
  routing.chosen.resize(static_cast<std::size_t>(routing.rows * per_row));
  routing.probabilities = Tensor(arena, MemoryKind::activation, type, logits.shape());
  routing.weights = Tensor(arena, MemoryKind::activation, type, {routing.rows, per_row});
  visit_wide(type, [&](auto zero) { choose_as<decltype(zero)>(logits, routing); });
  return routing;
}

double balance_loss(const Routing& routing) {
  if (routing.rows == 0) return 0;
  const auto experts = static_cast<std::size_t>(routing.experts);
  std::vector<double> sums(experts);
  visit_wide(routing.probabilities.type(), [&](auto zero) {
    const auto probabilities = routing.probabilities.span<decltype(zero)>();
    for (std::size_t i = 0; i < probabilities.size(); ++i)
      sums[i % experts] += static_cast<double>(probabilities[i]);
  });
  double loss = 0;
  const std::vector<std::int64_t> load = routing.load();
  for (std::size_t e = 0; e < experts; ++e) loss += static_cast<double>(load[e]) * sums[e];
  const auto rows = static_cast<double>(routing.rows);
  return loss * static_cast<double>(routing.experts) /
         (rows * rows * static_cast<double>(routing.per_row));
}

Tensor choose_experts_backward(const Routing& routing, const Tensor& dweights, double balance_scale,
                               Arena& arena) {
  const DataType type = routing.probabilities.type();
  TRAINING_CHECK(dweights.count() == routing.rows * routing.per_row, "a gradient of each weight");
  Tensor dlogits(arena, MemoryKind::activation, type, routing.probabilities.shape());
  visit_wide(type, [&](auto zero) {
    backward_as<decltype(zero)>(routing, dweights, balance_scale, dlogits);
  });
  return dlogits;
}

void place_rows(const Tensor& x, const Placement& placement, const Tensor& weights,
                const Tensor& placed) {
  HWY_DYNAMIC_DISPATCH(place)(x, placement, weights, placed);
}

void sum_slots(const Tensor& placed, const Placement& placement, const Tensor& weights,
               const Tensor& y) {
  HWY_DYNAMIC_DISPATCH(sum)(placed, placement, weights, y);
}

void slot_products(const Tensor& placed, const Placement& placement, const Tensor& dy,
                   const Tensor& dweights) {
  HWY_DYNAMIC_DISPATCH(products)(placed, placement, dy, dweights);
}

}  // namespace tutti::training
#endif  // HWY_ONCE
