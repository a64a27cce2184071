// gemm_builtin.cc: packs blocks of both matrices into strips that fit the caches, padded with
// zeros, and multiplies strip by strip in tiles that fit the registers. All elements go through the
// same instructions in the same order, which is what makes results independent of shapes.
//
// Knows nothing of modules. Source  Goto, van de Geijn: Anatomy of high-performance matrix
// multiplication (2008).
#include "training/ops/gemm_builtin.hpp"

#include <algorithm>
#include <cstdint>
#include <new>

#include "training/ops/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "training/ops/gemm_builtin.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "training/ops/vector_inl.hpp"

#ifndef TRAINING_OPS_GEMM_BUILTIN_ONCE
#define TRAINING_OPS_GEMM_BUILTIN_ONCE
namespace tutti::training {
namespace {

// Memory of a thread that stays for its next product.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { release(); }

  template <typename W>
  W* get(std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(W);
    if (bytes > bytes_) {
      release();
      memory_ = ::operator new(bytes, kAlignment);
      bytes_ = bytes;
    }
    return static_cast<W*>(memory_);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  void release() {
    if (memory_) ::operator delete(memory_, kAlignment);
  }

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

// One of the two matrices: element (o, k) lies at o * along_outer + k * along_depth, where `o` is a
// row of a or a column of b. One of the two steps is 1.
struct Operand {
  const std::byte* data;
  std::int64_t along_outer, along_depth;
};

Operand left_operand(const MatrixView& a) {
  return a.transposed ? Operand{a.data, 1, a.stride} : Operand{a.data, a.stride, 1};
}
Operand right_operand(const MatrixView& b) { return left_operand(b.transpose()); }

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace
}  // namespace tutti::training
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti::training::HWY_NAMESPACE {
namespace {

// The tile: rows of two vectors, as many as the registers hold next to a row of b.
inline constexpr bool kSixteenRegisters =
    HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_EMU128;
inline constexpr std::int64_t kTileRows = kSixteenRegisters ? 6 : 12;
template <typename W>
inline constexpr std::int64_t kTileColumns = 2 * kLanes<W>;

// Blocks: a strip of b's block stays in the first cache, a's block in the second one, b's block in
// the last one.
template <typename W>
inline constexpr std::int64_t kBlockDepth = 256;
inline constexpr std::int64_t kBlockRows = 144;  // of the left matrix, at the usual depth
inline constexpr std::int64_t kBlockColumns = 1536;

// The lowest kCount rows of a tile. Variables in a chain of structs, not an array, because
// compilers keep variables in registers.
template <typename W, std::int64_t kCount>
struct TileRows {
  Vector<W> left, right;
  TileRows<W, kCount - 1> rest;

  HWY_INLINE void clear() {
    left = right = hn::Zero(Lanes<W>());
    rest.clear();
  }
  HWY_INLINE void load(const W* c, std::int64_t stride) {
    left = load_lanes(c);
    right = load_lanes(c + kLanes<W>);
    rest.load(c + stride, stride);
  }
  HWY_INLINE void add(const W* a, Vector<W> b_left, Vector<W> b_right) {
    const Vector<W> factor = hn::Set(Lanes<W>(), *a);
    left = hn::MulAdd(factor, b_left, left);
    right = hn::MulAdd(factor, b_right, right);
    rest.add(a + 1, b_left, b_right);
  }
  HWY_INLINE void store(W* c, std::int64_t stride) const {
    store_lanes(left, c);
    store_lanes(right, c + kLanes<W>);
    rest.store(c + stride, stride);
  }
};

template <typename W>
struct TileRows<W, 0> {
  HWY_INLINE void clear() {}
  HWY_INLINE void load(const W*, std::int64_t) {}
  HWY_INLINE void add(const W*, Vector<W>, Vector<W>) {}
  HWY_INLINE void store(W*, std::int64_t) const {}
};

// c = a b of two strips, or c += a b.
template <typename W>
HWY_NOINLINE void multiply_tile(const W* HWY_RESTRICT a, const W* HWY_RESTRICT b,
                                std::int64_t depth, W* HWY_RESTRICT c, std::int64_t stride,
                                bool accumulate) {
  TileRows<W, kTileRows> sums;
  if (accumulate)
    sums.load(c, stride);
  else
    sums.clear();
  for (std::int64_t k = 0; k < depth; ++k) {
    sums.add(a, load_lanes(b), load_lanes(b + kLanes<W>));
    a += kTileRows;
    b += kTileColumns<W>;
  }
  sums.store(c, stride);
}

// One strip where the outer extent is the contiguous one in memory.
template <typename T, std::int64_t kWidth>
HWY_INLINE void copy_strip(const T* from, std::int64_t along_depth, std::int64_t width,
                           std::int64_t depth, Wide<T>* to) {
  for (std::int64_t k = 0; k < depth; ++k, from += along_depth, to += kWidth) {
    if constexpr (kWidth % kLanes<T> == 0) {
      if (width == kWidth) {
        for (std::int64_t o = 0; o < kWidth; o += kLanes<T>)
          store_lanes(load_lanes(from + o), to + o);
        continue;
      }
    }
    for (std::int64_t o = 0; o < width; ++o) to[o] = load(from[o]);
    for (std::int64_t o = width; o < kWidth; ++o) to[o] = 0;
  }
}

// Of float and double: as many elements as fit 16 bytes, of as many rows, become columns.
template <typename W>
inline constexpr std::int64_t kSquare = 16 / static_cast<std::int64_t>(sizeof(W));

template <typename W>
HWY_INLINE void transpose_square(const W* from, std::int64_t from_stride, W* to,
                                 std::int64_t to_stride) {
  const hn::CappedTag<W, kSquare<W>> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_stride);
  if constexpr (kSquare<W> == 2) {
    hn::StoreU(hn::InterleaveLower(d, r0, r1), d, to);
    hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, to + to_stride);
  } else {
    const auto r2 = hn::LoadU(d, from + 2 * from_stride), r3 = hn::LoadU(d, from + 3 * from_stride);
    const auto even_low = hn::InterleaveLower(d, r0, r2), odd_low = hn::InterleaveLower(d, r1, r3);
    const auto even_high = hn::InterleaveUpper(d, r0, r2),
               odd_high = hn::InterleaveUpper(d, r1, r3);
    hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, to);
    hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, to + to_stride);
    hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, to + 2 * to_stride);
    hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, to + 3 * to_stride);
  }
}

// The same of [k, end) elements of `width` rows.
template <typename T, std::int64_t kWidth>
HWY_INLINE void transpose_range(const T* from, std::int64_t along_outer, std::int64_t width,
                                std::int64_t k, std::int64_t end, Wide<T>* to) {
  std::int64_t o = 0;
  if constexpr (std::is_same_v<T, Wide<T>>)
    if ((end - k) % kSquare<T> == 0)
      for (; o + kSquare<T> <= width; o += kSquare<T>)
        for (std::int64_t i = k; i < end; i += kSquare<T>)
          transpose_square(from + o * along_outer + i, along_outer, to + i * kWidth + o, kWidth);
  for (; o < width; ++o)
    for (std::int64_t i = k; i < end; ++i) to[i * kWidth + o] = load(from[o * along_outer + i]);
}

// One strip where the depth is the contiguous extent: reads a cache line of each row at a time.
template <typename T, std::int64_t kWidth>
HWY_INLINE void transpose_strip(const T* from, std::int64_t along_outer, std::int64_t width,
                                std::int64_t depth, Wide<T>* to) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t k = 0; k < depth; k += kLine) {
    const std::int64_t end = std::min(k + kLine, depth);
    transpose_range<T, kWidth>(from, along_outer, width, k, end, to);
    for (std::int64_t i = k; i < end; ++i)
      std::fill(to + i * kWidth + width, to + (i + 1) * kWidth, 0);
  }
}

// Strips of kWidth rows of a, or columns of b: for each k the kWidth elements, widened, one after
// the other; the last strip is filled up with zeros.
template <typename T, std::int64_t kWidth>
void pack(const Operand& operand, std::int64_t outer, std::int64_t count, std::int64_t k,
          std::int64_t depth, Wide<T>* to) {
  const T* from = reinterpret_cast<const T*>(operand.data) + outer * operand.along_outer +
                  k * operand.along_depth;
  for (std::int64_t o = 0; o < count; o += kWidth, to += kWidth * depth) {
    const T* first = from + o * operand.along_outer;
    const std::int64_t width = std::min(kWidth, count - o);
    if (operand.along_outer == 1)
      copy_strip<T, kWidth>(first, operand.along_depth, width, depth, to);
    else
      transpose_strip<T, kWidth>(first, operand.along_outer, width, depth, to);
  }
}

// Elements of type T, a result of type Out: T, or Wide<T>.
template <typename T, typename Out>
class Multiplier {
 public:
  explicit Multiplier(const Product& product)
      : p_(product), a_(left_operand(product.a)), b_(right_operand(product.b)) {
    // A narrow result cannot hold a sum that is not complete.
    if constexpr (!std::is_same_v<Out, W>) {
      block_depth_ = std::max(p_.depth, block_depth_);
      block_rows_ =
          std::max(kTileRows, kBlockRows * kBlockDepth<W> / block_depth_ / kTileRows * kTileRows);
    }
  }

  void run() {
    thread_local Scratch a_scratch, b_scratch;
    const std::int64_t depth = std::min(block_depth_, p_.depth);
    W* const a = a_scratch.get<W>(round_up(std::min(block_rows_, p_.rows), kTileRows) * depth);
    W* const b =
        b_scratch.get<W>(round_up(std::min(kBlockColumns, p_.columns), kTileColumns<W>) * depth);
    for (std::int64_t column = 0; column < p_.columns; column += kBlockColumns) {
      const std::int64_t columns = std::min(kBlockColumns, p_.columns - column);
      std::int64_t k = 0;
      do {  // also once where the sums are of nothing
        const std::int64_t part = std::min(block_depth_, p_.depth - k);
        pack<T, kTileColumns<W>>(b_, column, columns, k, part, b);
        const bool accumulate = p_.accumulate || k > 0;
        for (std::int64_t row = 0; row < p_.rows; row += block_rows_) {
          const std::int64_t rows = std::min(block_rows_, p_.rows - row);
          pack<T, kTileRows>(a_, row, rows, k, part, a);
          multiply_block(a, b, part, {row, rows}, {column, columns}, accumulate);
        }
        k += part;
      } while (k < p_.depth);
    }
  }

 private:
  using W = Wide<T>;
  struct Range {
    std::int64_t begin, count;
  };

  void multiply_block(const W* a, const W* b, std::int64_t depth, Range rows, Range columns,
                      bool accumulate) {
    Out* const c = reinterpret_cast<Out*>(p_.c.data) + rows.begin * p_.c.stride + columns.begin;
    for (std::int64_t j = 0; j < columns.count; j += kTileColumns<W>)
      for (std::int64_t i = 0; i < rows.count; i += kTileRows) {
        Out* const to = c + i * p_.c.stride + j;
        const std::int64_t height = std::min(kTileRows, rows.count - i);
        const std::int64_t width = std::min(kTileColumns<W>, columns.count - j);
        if constexpr (std::is_same_v<Out, W>) {
          if (height == kTileRows && width == kTileColumns<W>) {
            multiply_tile<W>(a + i * depth, b + j * depth, depth, to, p_.c.stride, accumulate);
            continue;
          }
        }
        multiply_edge(a + i * depth, b + j * depth, depth, to, {height, width}, accumulate);
      }
  }

  struct Extent {
    std::int64_t rows, columns;
  };

  // A tile that is not all of c, or not of c's type: by way of one that is.
  void multiply_edge(const W* a, const W* b, std::int64_t depth, Out* c, Extent extent,
                     bool accumulate) {
    HWY_ALIGN W tile[kTileRows * kTileColumns<W>] = {};
    if (accumulate)
      for (std::int64_t i = 0; i < extent.rows; ++i)
        for (std::int64_t j = 0; j < extent.columns; ++j)
          tile[i * kTileColumns<W> + j] = load(c[i * p_.c.stride + j]);
    multiply_tile<W>(a, b, depth, tile, kTileColumns<W>, accumulate);
    for (std::int64_t i = 0; i < extent.rows; ++i)
      for_vectors<Out>(extent.columns, [&](std::int64_t j, std::int64_t n) HWY_ATTR {
        store_lanes(load_lanes(tile + i * kTileColumns<W> + j), c + i * p_.c.stride + j, n);
      });
  }

  const Product& p_;
  Operand a_, b_;
  std::int64_t block_depth_ = kBlockDepth<W>;
  std::int64_t block_rows_ = kBlockRows;
};

void multiply_all(const Product& product) {
  visit(product.a.type, [&](auto zero) {
    using T = decltype(zero);
    if (product.c.type == wide_type(product.a.type))
      Multiplier<T, Wide<T>>(product).run();
    else
      Multiplier<T, T>(product).run();
  });
}

}  // namespace
}  // namespace tutti::training::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::training {

HWY_EXPORT(multiply_all);

void multiply_builtin(const Product& product) {
  if (product.rows > 0 && product.columns > 0) HWY_DYNAMIC_DISPATCH(multiply_all)(product);
}

}  // namespace tutti::training
#endif
