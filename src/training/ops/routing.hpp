// routing.hpp: which experts a row goes to, and the arithmetic on rows on their way there and back.
//
// Knows nothing of where experts are; modules/dispatch.hpp does.
//
// Source  Shazeer et al.: Outrageously large neural networks (2017); the balance loss: Fedus, Zoph,
//         Shazeer: Switch Transformers (2022); weights of the chosen ones only: Jiang et al.:
//         Mixtral of experts (2024).
#pragma once

#include <cstdint>
#include <vector>

#include "training/tensor/tensor.hpp"

namespace tutti::training {

// Each row has `per_row` slots, each with another expert. An assignment is a (row, slot), numbered
// row * per_row + slot.
struct Routing {
  std::int64_t rows = 0, experts = 0, per_row = 0;
  std::vector<std::int32_t> chosen;  // the expert of each assignment
  Tensor probabilities;              // [rows, experts], of wide type
  Tensor weights;                    // [rows, per_row], of wide type; each row's sum is 1

  // Assignments of each expert.
  std::vector<std::int64_t> load() const;
};

// The most probable experts of softmax(logits), the lower one of two equal ones, by descending
// probability; weights are their probabilities by the sum of these.
// Requires  logits: [rows, experts], of wide type; per_row in [1, experts].
Routing choose_experts(const Tensor& logits, std::int64_t per_row, Arena& arena);

// experts * sum over experts of (fraction of the assignments) * (mean probability): 1 where rows
// are spread evenly, and up to the number of experts where they are not. 0 without rows.
double balance_loss(const Routing& routing);

// The gradient of the logits, given that of the weights, plus `balance_scale` times that of the
// balance loss, in which the fractions count as constants.
Tensor choose_experts_backward(const Routing& routing, const Tensor& dweights, double balance_scale,
                               Arena& arena);

// Where the row of each assignment is in a matrix of rows that travel.
struct Placement {
  static constexpr std::int64_t kDropped = -1;

  std::int64_t per_row = 0;
  std::vector<std::int64_t> positions;  // of each assignment, or kDropped

  std::int64_t rows() const { return static_cast<std::int64_t>(positions.size()) / per_row; }
};

// Of the three: x, y, dy: [rows, size]; placed: [rows that travel, size], all of one type; weights
// and dweights: [rows, per_row] of its wide type. Empty weights are ones.

// placed[position] = weight * x[row], for each assignment.
void place_rows(const Tensor& x, const Placement& placement, const Tensor& weights,
                const Tensor& placed);
// y[row] = the sum of weight * placed[position], in the order of slots, rounded once.
void sum_slots(const Tensor& placed, const Placement& placement, const Tensor& weights,
               const Tensor& y);
// dweights = the inner product of dy[row] and placed[position]; 0 for what was dropped.
void slot_products(const Tensor& placed, const Placement& placement, const Tensor& dy,
                   const Tensor& dweights);

}  // namespace tutti::training
