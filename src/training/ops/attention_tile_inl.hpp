// attention_tile_inl.hpp: what attention does with one tile of scores: products of small matrices
// that stay in the nearest cache, and the softmax of rows.
//
// Compiled once per instruction set (hence no `#pragma once` but Highway's toggle). Knows nothing
// of heads and sequences. All memory is scratch of the type that is computed in, with room for
// whole vectors and whole blocks of rows, so that no loop has a remainder of another kind.
#if defined(TRAINING_OPS_ATTENTION_TILE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAINING_OPS_ATTENTION_TILE_INL_HPP
#undef TRAINING_OPS_ATTENTION_TILE_INL_HPP
#else
#define TRAINING_OPS_ATTENTION_TILE_INL_HPP
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "training/ops/math_inl.hpp"
#include "training/ops/vector_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {

// Rows and columns of scores that are computed at once. A product's operands are then at most
// 64 x head_size, small enough for the first two caches.
inline constexpr std::int64_t kTile = 64;

// Columns come in multiples of the longest vectors'.
inline constexpr std::int64_t kColumnStep = 16;
static_assert(kLanes<float> <= kColumnStep && kTile % kColumnStep == 0);

inline constexpr std::int64_t round_up_columns(std::int64_t columns) {
  return (columns + kColumnStep - 1) / kColumnStep * kColumnStep;
}

// A left operand: element (row, k) is at data[row * row_stride + k * depth_stride]; the strides of
// a transposed matrix are the other way round.
template <typename W>
struct LeftOperand {
  const W* data;
  std::int64_t row_stride, depth_stride;
};

template <typename W>
struct RowMajor {
  W* data;
  std::int64_t stride;
};

// Instruction sets with vectors of 64 bytes have 32 registers for them; the others 16.
inline constexpr int kBlockRows = kLanes<float> == 16 ? 8 : 4;

// Whether a product is added to what is there, or takes its place, which then need not be cleared.
enum class Onto : bool { sum, nothing };

// kBlockRows rows and kVectors vectors of c += a b or c = a b, held in registers over the whole
// depth.
template <typename W, Onto kOnto, int kVectors>
HWY_INLINE void multiply_block(const LeftOperand<W>& a, const RowMajor<const W>& b,
                               const RowMajor<W>& c, std::int64_t depth) {
  const Lanes<W> d;
  Vector<W> sums[kBlockRows][kVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kBlockRows; ++r) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = kOnto == Onto::nothing ? hn::Zero(d)
                                          : hn::LoadU(d, c.data + r * c.stride + v * kLanes<W>);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector<W> row[kVectors];
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b.data + k * b.stride + v * kLanes<W>);
    const W* left = a.data + k * a.depth_stride;
    HWY_UNROLL(8)
    for (int r = 0; r < kBlockRows; ++r) {
      const auto factor = hn::Set(d, left[r * a.row_stride]);
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(factor, row[v], sums[r][v]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kBlockRows; ++r) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v)
      hn::StoreU(sums[r][v], d, c.data + r * c.stride + v * kLanes<W>);
  }
}

// c += a b or c = a b, each element one chain of additions over the depth.
// Requires  columns a multiple of kColumnStep; memory for rows up to a multiple of kBlockRows.
template <typename W, Onto kOnto>
HWY_INLINE void product(const LeftOperand<W>& a, const RowMajor<const W>& b, const RowMajor<W>& c,
                        std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  for (std::int64_t r = 0; r < rows; r += kBlockRows) {
    const LeftOperand<W> left = {a.data + r * a.row_stride, a.row_stride, a.depth_stride};
    W* const to = c.data + r * c.stride;
    std::int64_t column = 0;
    for (; column + 2 * kLanes<W> <= columns; column += 2 * kLanes<W>)
      multiply_block<W, kOnto, 2>(left, {b.data + column, b.stride}, {to + column, c.stride},
                                  depth);
    for (; column < columns; column += kLanes<W>)
      multiply_block<W, kOnto, 1>(left, {b.data + column, b.stride}, {to + column, c.stride},
                                  depth);
  }
}

template <typename W>
HWY_INLINE void clear_rows(W* data, std::int64_t rows, std::int64_t stride) {
  std::memset(data, 0, static_cast<std::size_t>(rows * stride) * sizeof(W));
}

template <typename W>
HWY_INLINE void scale_row(W* row, std::int64_t columns, W factor) {
  const Lanes<W> d;
  const auto by = hn::Set(d, factor);
  for (std::int64_t i = 0; i < columns; i += kLanes<W>)
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), by), d, row + i);
}

// Calls f(i, mask) for the vectors that hold the first `valid` elements of a row, then clears the
// rest of its `columns`.
template <typename W, typename F>
HWY_INLINE void for_valid(W* row, std::int64_t valid, std::int64_t columns, const F& f) {
  const Lanes<W> d;
  std::int64_t i = 0;
  for (; i < valid; i += kLanes<W>)
    f(i, hn::FirstN(d, static_cast<std::size_t>(std::min(valid - i, kLanes<W>))));
  for (; i < columns; i += kLanes<W>) hn::StoreU(hn::Zero(d), d, row + i);
}

// What is known of a row of scores after some of its tiles.
template <typename W>
struct RowState {
  W largest = hwy::LowestValue<W>();
  W sum = 0;  // of exp(score - largest)
};

// Turns scores, which are still to be scaled, into exp(score - the largest so far). The result is
// the factor that brings what was computed with the former largest up to date.
template <typename W>
HWY_INLINE W exponentiate_row(W* row, std::int64_t valid, std::int64_t columns, W scale,
                              RowState<W>& state) {
  const Lanes<W> d;
  const auto lowest = hn::Set(d, hwy::LowestValue<W>());
  const auto by = hn::Set(d, scale);
  auto largest = lowest;
  for_valid(row, valid, columns, [&](std::int64_t i, auto mask) HWY_ATTR {
    const auto score = hn::IfThenElse(mask, hn::Mul(hn::LoadU(d, row + i), by), lowest);
    hn::StoreU(score, d, row + i);
    largest = hn::Max(largest, score);
  });
  const W before = state.largest;
  state.largest = std::max(before, hn::GetLane(hn::MaxOfLanes(d, largest)));

  const auto subtract = hn::Set(d, state.largest);
  auto sum = hn::Zero(d);
  for_valid(row, valid, columns, [&](std::int64_t i, auto mask) HWY_ATTR {
    const auto power = exp_lanes<W>(hn::Sub(hn::LoadU(d, row + i), subtract));
    const auto kept = hn::IfThenElseZero(mask, power);
    hn::StoreU(kept, d, row + i);
    sum = hn::Add(sum, kept);
  });
  const W factor = hn::GetLane(exp_lanes<W>(hn::Set(d, before - state.largest)));
  state.sum = state.sum * factor + sum_lanes<W>(sum);
  return factor;
}

// Turns scores into probabilities, given the logarithm of the sum of the row's exponentials; and
// the gradients of probabilities into those of scores before they were scaled, given
// delta = sum over the row of probability * gradient.
template <typename W>
HWY_INLINE void differentiate_row(W* scores, W* gradients, std::int64_t valid, std::int64_t columns,
                                  W scale, W logarithm, W delta) {
  const Lanes<W> d;
  const auto by = hn::Set(d, scale);
  const auto log_sum = hn::Set(d, logarithm);
  const auto mean = hn::Set(d, delta);
  for_valid(scores, valid, columns, [&](std::int64_t i, auto mask) HWY_ATTR {
    const auto exponent = hn::Sub(hn::Mul(hn::LoadU(d, scores + i), by), log_sum);
    const auto probability = hn::IfThenElseZero(mask, exp_lanes<W>(exponent));
    hn::StoreU(probability, d, scores + i);
  });
  for_valid(gradients, valid, columns, [&](std::int64_t i, auto mask) HWY_ATTR {
    const auto slope = hn::Mul(hn::LoadU(d, scores + i), by);
    const auto gradient = hn::Mul(slope, hn::Sub(hn::LoadU(d, gradients + i), mean));
    hn::StoreU(hn::IfThenElseZero(mask, gradient), d, gradients + i);
  });
}

template <typename W>
HWY_INLINE W dot_row(const W* a, const W* b, std::int64_t columns) {
  const Lanes<W> d;
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < columns; i += kLanes<W>)
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  return sum_lanes<W>(sum);
}

}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
