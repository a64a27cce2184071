// attention.cc: attention's way over sequences, heads and tiles; see attention.hpp.
//
// A head's rows are copied into scratch of the type that is computed in, one after the other, for
// a head's row is a short piece of an activation's row.
#include "training/ops/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "training/ops/targets.hpp"
#include "training/tensor/element.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/ops/attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "training/ops/attention_tile_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {

// The rows of one head in an activation: `size` elements every `stride`.
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t stride;
};

// The extents of a head's scratch. All rows that tiles reach are there.
struct HeadExtents {
  explicit HeadExtents(const AttentionShape& shape)
      : sequence(shape.sequence),
        size(shape.head_size),
        width(round_up_columns(shape.head_size)),
        rows((shape.sequence + kTile - 1) / kTile * kTile) {}

  std::int64_t sequence, size;
  std::int64_t width, rows;  // in scratch

  std::int64_t tile_rows(std::int64_t first) const { return std::min(kTile, sequence - first); }
};

// Hands out pieces of one tensor.
template <typename W>
class Scratch {
 public:
  Scratch(Arena& arena, std::int64_t count)
      : memory_(arena, MemoryKind::activation, data_type_of<W>(), {count}),
        next_(memory_.as<W>()),
        end_(next_ + count) {}

  W* take(std::int64_t count) {
    TRAINING_CHECK(end_ - next_ >= count, "scratch was counted wrongly");
    return std::exchange(next_, next_ + count);
  }

 private:
  Tensor memory_;
  W* next_;
  W* end_;
};

template <typename T>
void pack(const HeadRows<const T>& from, const HeadExtents& extents, Wide<T>* to) {
  for (std::int64_t r = 0; r < extents.sequence; ++r) {
    const T* row = from.data + r * from.stride;
    Wide<T>* packed = to + r * extents.width;
    std::fill(packed + extents.size, packed + extents.width, Wide<T>{0});
    for_vectors<T>(extents.size, [&](std::int64_t i, std::int64_t n) HWY_ATTR {
      store_lanes(load_lanes(row + i, n), packed + i, n);
    });
  }
  clear_rows(to + extents.sequence * extents.width, extents.rows - extents.sequence, extents.width);
}

template <typename T>
void unpack(const Wide<T>* from, const HeadExtents& extents, const HeadRows<T>& to) {
  for (std::int64_t r = 0; r < extents.sequence; ++r) {
    const Wide<T>* packed = from + r * extents.width;
    T* row = to.data + r * to.stride;
    for_vectors<T>(extents.size, [&](std::int64_t i, std::int64_t n) HWY_ATTR {
      store_lanes(load_lanes(packed + i, n), row + i, n);
    });
  }
}

// Each tile of `packed` by itself, as [size, kTile]: the right operand of a product with its rows.
template <typename W>
void transpose_tiles(const W* packed, const HeadExtents& extents, W* to) {
  for (std::int64_t first = 0; first < extents.rows; first += kTile) {
    const W* from = packed + first * extents.width;
    for (std::int64_t k = 0; k < extents.size; ++k, to += kTile)
      for (std::int64_t r = 0; r < kTile; ++r) to[r] = from[r * extents.width + k];
  }
}

// Rows of a tile of scores in strips: f(first row, rows, valid columns). A tile on the diagonal has
// nothing beyond it to compute; any other is one strip.
template <typename F>
HWY_INLINE void for_strips(bool diagonal, std::int64_t rows, std::int64_t columns, const F& f) {
  const std::int64_t step = diagonal ? kColumnStep : kTile;
  for (std::int64_t r = 0; r < rows; r += step)
    f(r, std::min(step, rows - r), diagonal ? std::min(columns, r + step) : columns);
}

// The scores of a tile, or the gradients of probabilities: c = a b, where that is not beyond the
// diagonal; what is beyond it stays as it was, until a row is exponentiated or differentiated.
template <typename W>
HWY_INLINE void multiply_tile(bool diagonal, const RowMajor<const W>& a, const W* b_tile,
                              const HeadExtents& e, W* c, std::int64_t rows, std::int64_t columns) {
  for_strips(diagonal, rows, columns, [&](std::int64_t r, std::int64_t n, std::int64_t valid) {
    product<W, Onto::nothing>({a.data + r * a.stride, a.stride, 1}, {b_tile, kTile},
                              {c + r * kTile, kTile}, n, round_up_columns(valid), e.size);
  });
}

// to += scores b, b the rows of k or v that the tile's columns are of.
template <typename W>
HWY_INLINE void add_weighted(bool diagonal, const W* scores, const RowMajor<const W>& b,
                             const RowMajor<W>& to, std::int64_t rows, std::int64_t columns) {
  for_strips(diagonal, rows, columns, [&](std::int64_t r, std::int64_t n, std::int64_t valid) {
    product<W, Onto::sum>({scores + r * kTile, kTile, 1}, b, {to.data + r * to.stride, to.stride},
                          n, b.stride, valid);
  });
}

// to += scores^T b, b the rows of q or dout that the tile's rows are of. A column of a tile on the
// diagonal begins there.
template <typename W>
HWY_INLINE void add_transposed(bool diagonal, const W* scores, const RowMajor<const W>& b,
                               const RowMajor<W>& to, std::int64_t rows, std::int64_t columns) {
  const std::int64_t step = diagonal ? kColumnStep : kTile;
  for (std::int64_t c = 0; c < columns; c += step) {
    const std::int64_t first = diagonal ? c : 0;
    product<W, Onto::sum>(
        {scores + first * kTile + c, 1, kTile}, {b.data + first * b.stride, b.stride},
        {to.data + c * to.stride, to.stride}, std::min(step, columns - c), b.stride, rows - first);
  }
}

template <typename W>
struct ForwardHead {
  const HeadExtents& extents;
  W scale;
  W *q, *k_transposed, *v, *out;  // packed
  W* scores;                      // of one tile
};

// The rows [first, first + kTile) of out.
template <typename W>
void forward_tile_row(const ForwardHead<W>& head, std::int64_t first, W* logarithms) {
  const HeadExtents& e = head.extents;
  const std::int64_t rows = e.tile_rows(first);
  W* const out = head.out + first * e.width;
  RowState<W> states[kTile];
  clear_rows(out, kTile, e.width);
  for (std::int64_t begin = 0; begin <= first; begin += kTile) {
    const std::int64_t count = e.tile_rows(begin), columns = round_up_columns(count);
    const bool diagonal = begin == first;
    multiply_tile<W>(diagonal, {head.q + first * e.width, e.width},
                     head.k_transposed + begin * e.size, e, head.scores, rows, count);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t valid = std::min(count, first + r - begin + 1);
      const W factor =
          exponentiate_row(head.scores + r * kTile, valid, columns, head.scale, states[r]);
      if (factor != 1) scale_row(out + r * e.width, e.width, factor);
    }
    add_weighted<W>(diagonal, head.scores, {head.v + begin * e.width, e.width}, {out, e.width},
                    rows, count);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    scale_row(out + r * e.width, e.width, 1 / states[r].sum);
    logarithms[first + r] = states[r].largest + std::log(states[r].sum);
  }
}

template <typename W>
struct BackwardHead {
  const HeadExtents& extents;
  W scale;
  W *q = nullptr, *k = nullptr, *dout = nullptr;  // packed
  W *k_transposed = nullptr, *v_transposed = nullptr;
  W *dq = nullptr, *dk = nullptr, *dv = nullptr;  // sums
  W* delta = nullptr;                             // of each row: see differentiate_row
  W *scores = nullptr, *gradients = nullptr;      // of one tile
};

// What the rows [first, first + kTile) of q have to do with those from `begin` of k and v.
template <typename W>
void backward_tile(const BackwardHead<W>& head, std::int64_t first, std::int64_t begin,
                   const W* logarithms) {
  const HeadExtents& e = head.extents;
  const std::int64_t rows = e.tile_rows(first), count = e.tile_rows(begin);
  const std::int64_t columns = round_up_columns(count);
  const bool diagonal = begin == first;
  const RowMajor<const W> q = {head.q + first * e.width, e.width};
  const RowMajor<const W> dout = {head.dout + first * e.width, e.width};
  multiply_tile<W>(diagonal, q, head.k_transposed + begin * e.size, e, head.scores, rows, count);
  multiply_tile<W>(diagonal, dout, head.v_transposed + begin * e.size, e, head.gradients, rows,
                   count);
  for (std::int64_t r = 0; r < rows; ++r)
    differentiate_row(head.scores + r * kTile, head.gradients + r * kTile,
                      std::min(count, first + r - begin + 1), columns, head.scale,
                      logarithms[first + r], head.delta[first + r]);
  add_transposed<W>(diagonal, head.scores, dout, {head.dv + begin * e.width, e.width}, rows, count);
  add_transposed<W>(diagonal, head.gradients, q, {head.dk + begin * e.width, e.width}, rows, count);
  add_weighted<W>(diagonal, head.gradients, {head.k + begin * e.width, e.width},
                  {head.dq + first * e.width, e.width}, rows, count);
}

template <typename W>
void backward_head(const BackwardHead<W>& head, const W* logarithms) {
  const HeadExtents& e = head.extents;
  clear_rows(head.dq, e.rows, e.width);
  for (std::int64_t begin = 0; begin < e.sequence; begin += kTile)
    for (std::int64_t first = begin; first < e.sequence; first += kTile)
      backward_tile(head, first, begin, logarithms);
}

// Where the heads of a sequence's activation are.
template <typename T>
class Heads {
 public:
  Heads(const Tensor& tensor, const AttentionShape& shape)
      : data_(tensor.as<std::remove_const_t<T>>()),
        stride_(tensor.columns()),
        sequence_(shape.sequence),
        size_(shape.head_size) {}

  HeadRows<T> operator()(std::int64_t batch, std::int64_t head) const {
    return {data_ + batch * sequence_ * stride_ + head * size_, stride_};
  }

 private:
  T* data_;
  std::int64_t stride_, sequence_, size_;
};

template <typename W>
W scale_of(const AttentionShape& shape) {
  return static_cast<W>(1 / std::sqrt(static_cast<double>(shape.head_size)));
}

template <typename T>
void forward_as(const AttentionShape& shape, const AttentionInput& input,
                const AttentionOutput& output, Arena& arena) {
  using W = Wide<T>;
  const HeadExtents e(shape);
  const std::int64_t packed = e.rows * e.width;
  Scratch<W> scratch(arena, 4 * packed + e.rows * e.size + kTile * kTile);
  W* const k = scratch.take(packed);
  const ForwardHead<W> head = {e,
                               scale_of<W>(shape),
                               scratch.take(packed),
                               scratch.take(e.rows * e.size),
                               scratch.take(packed),
                               scratch.take(packed),
                               scratch.take(kTile * kTile)};
  const Heads<const T> qs(input.q, shape), ks(input.k, shape), vs(input.v, shape);
  const Heads<T> outs(output.out, shape);
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      if (h % group == 0) {
        pack<T>(ks(b, h / group), e, k);
        transpose_tiles(k, e, head.k_transposed);
        pack<T>(vs(b, h / group), e, head.v);
      }
      pack<T>(qs(b, h), e, head.q);
      W* const logarithms = output.logarithms.as<W>() + (b * shape.heads + h) * e.sequence;
      for (std::int64_t first = 0; first < e.sequence; first += kTile)
        forward_tile_row(head, first, logarithms);
      unpack<T>(head.out, e, outs(b, h));
    }
  }
}

// What of a key-value head all its query heads need.
template <typename T>
void pack_keys_and_values(const HeadRows<const T>& k, const HeadRows<const T>& v,
                          const BackwardHead<Wide<T>>& head) {
  const HeadExtents& e = head.extents;
  pack<T>(v, e, head.k);
  transpose_tiles(head.k, e, head.v_transposed);
  pack<T>(k, e, head.k);
  transpose_tiles(head.k, e, head.k_transposed);
  clear_rows(head.dk, e.rows, e.width);
  clear_rows(head.dv, e.rows, e.width);
}

template <typename T>
void pack_queries(const HeadRows<const T>& q, const HeadRows<const T>& out,
                  const HeadRows<const T>& dout, const BackwardHead<Wide<T>>& head) {
  const HeadExtents& e = head.extents;
  pack<T>(out, e, head.q);
  pack<T>(dout, e, head.dout);
  for (std::int64_t r = 0; r < e.sequence; ++r)
    head.delta[r] = dot_row(head.q + r * e.width, head.dout + r * e.width, e.width);
  pack<T>(q, e, head.q);
}

template <typename W>
BackwardHead<W> backward_scratch(const HeadExtents& e, W scale, Scratch<W>& scratch) {
  const std::int64_t packed = e.rows * e.width, transposed = e.rows * e.size;
  BackwardHead<W> head = {.extents = e, .scale = scale};
  for (W** rows : {&head.q, &head.k, &head.dout, &head.dq, &head.dk, &head.dv})
    *rows = scratch.take(packed);
  head.k_transposed = scratch.take(transposed);
  head.v_transposed = scratch.take(transposed);
  head.delta = scratch.take(e.rows);
  head.scores = scratch.take(kTile * kTile);
  head.gradients = scratch.take(kTile * kTile);
  return head;
}

template <typename T>
void backward_as(const AttentionShape& shape, const AttentionInput& input,
                 const AttentionOutput& output, const Tensor& dout, const AttentionInput& gradients,
                 Arena& arena) {
  using W = Wide<T>;
  const HeadExtents e(shape);
  Scratch<W> scratch(arena, e.rows * (6 * e.width + 2 * e.size + 1) + 2 * kTile * kTile);
  const BackwardHead<W> head = backward_scratch(e, scale_of<W>(shape), scratch);
  const Heads<const T> qs(input.q, shape), ks(input.k, shape), vs(input.v, shape);
  const Heads<const T> outs(output.out, shape), douts(dout, shape);
  const Heads<T> dqs(gradients.q, shape), dks(gradients.k, shape), dvs(gradients.v, shape);
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      if (h % group == 0) pack_keys_and_values<T>(ks(b, h / group), vs(b, h / group), head);
      pack_queries<T>(qs(b, h), outs(b, h), douts(b, h), head);
      backward_head<W>(head, output.logarithms.as<W>() + (b * shape.heads + h) * e.sequence);
      unpack<T>(head.dq, e, dqs(b, h));
      if ((h + 1) % group > 0) continue;  // sums of the whole group
      unpack<T>(head.dk, e, dks(b, h / group));
      unpack<T>(head.dv, e, dvs(b, h / group));
    }
  }
}

void forward(const AttentionShape& shape, const AttentionInput& input,
             const AttentionOutput& output, Arena& arena) {
  visit(input.q.type(),
        [&](auto zero) { forward_as<decltype(zero)>(shape, input, output, arena); });
}

void backward(const AttentionShape& shape, const AttentionInput& input,
              const AttentionOutput& output, const Tensor& dout, const AttentionInput& gradients,
              Arena& arena) {
  visit(input.q.type(), [&](auto zero) {
    backward_as<decltype(zero)>(shape, input, output, dout, gradients, arena);
  });
}

}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::training {
namespace {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void check_shapes(const AttentionShape& shape, const AttentionInput& input) {
  const std::int64_t rows = shape.batch * shape.sequence;
  const std::int64_t columns = shape.heads * shape.head_size;
  const std::int64_t kv_columns = shape.kv_heads * shape.head_size;
  TRAINING_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
                 "query heads come in groups of one size");
  TRAINING_CHECK(input.q.count() == rows * columns && input.q.columns() == columns,
                 "q is [batch * sequence, heads * head_size]");
  TRAINING_CHECK(input.k.count() == rows * kv_columns && input.k.columns() == kv_columns,
                 "k is [batch * sequence, kv_heads * head_size]");
  TRAINING_CHECK(input.v.shape() == input.k.shape(), "v is like k");
}

}  // namespace

AttentionOutput attention_forward(const AttentionShape& shape, const AttentionInput& input,
                                  Arena& arena) {
  check_shapes(shape, input);
  const DataType type = input.q.type();
  const AttentionOutput output = {
      Tensor(arena, MemoryKind::activation, type, input.q.shape()),
      Tensor(arena, MemoryKind::activation, wide_type(type),
             {shape.batch * shape.heads, shape.sequence}),
  };
  HWY_DYNAMIC_DISPATCH(forward)(shape, input, output, arena);
  return output;
}

AttentionInput attention_backward(const AttentionShape& shape, const AttentionInput& input,
                                  const AttentionOutput& output, const Tensor& dout, Arena& arena) {
  check_shapes(shape, input);
  TRAINING_CHECK(dout.count() == output.out.count(), "the gradient is like the output");
  const auto like = [&](const Tensor& t) {
    return Tensor(arena, MemoryKind::activation, t.type(), t.shape());
  };
  const AttentionInput gradients = {like(input.q), like(input.k), like(input.v)};
  HWY_DYNAMIC_DISPATCH(backward)(shape, input, output, dout, gradients, arena);
  return gradients;
}

}  // namespace tutti::training
#endif  // HWY_ONCE
