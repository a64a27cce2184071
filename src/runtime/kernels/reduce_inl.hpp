// reduce_inl.hpp: the loop of every reduction: a block of a few vectors is folded over all sources
// in registers and then stored to all destinations, so that memory is touched once.
//
// Compiled once per instruction set (hence no `#pragma once` but Highway's toggle). Knows nothing
// of element types and operations but what formats_inl.hpp tells.
#if defined(TUTTI_KERNELS_REDUCE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_REDUCE_INL_HPP
#undef TUTTI_KERNELS_REDUCE_INL_HPP
#else
#define TUTTI_KERNELS_REDUCE_INL_HPP
#endif

#include <algorithm>
#include <cstddef>

#include "runtime/kernels/formats_inl.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/kernels/memory_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::runtime::kernels::HWY_NAMESPACE {

template <class Format, class Op>
class Reducer {
 public:
  explicit Reducer(const ReduceCall& call) : call_(call) {}

  void run(std::size_t bytes, std::size_t element_bytes) {
    std::size_t head = kNoBoundary;
    if (call_.stores == StoreHint::streaming)
      head = bytes_to_boundary(call_.destinations, element_bytes);
    if (head == kNoBoundary || head >= bytes) {
      run_blocks<false>(0, bytes);
    } else {
      if (head > 0) few(0, head);
      run_blocks<true>(head, bytes);
      hwy::FlushStream();
    }
  }

 private:
  using Wide = typename Format::Wide;

  template <bool kStreaming>
  HWY_INLINE void run_blocks(std::size_t offset, std::size_t bytes) {
    for (; offset + 4 * kVectorBytes <= bytes; offset += 4 * kVectorBytes)
      block<kStreaming>(offset);
    for (; offset < bytes; offset += kVectorBytes)
      few(offset, std::min(kVectorBytes, bytes - offset));
  }

  // Four vectors: enough independent work to hide the latency of the arithmetic. They are four
  // variables, not an array, because compilers keep variables in registers.
  template <bool kStreaming>
  HWY_INLINE void block(std::size_t offset) {
    const std::byte* from = call_.sources[0] + offset;
    Wide a = Format::widen(load(from));
    Wide b = Format::widen(load(from + kVectorBytes));
    Wide c = Format::widen(load(from + 2 * kVectorBytes));
    Wide d = Format::widen(load(from + 3 * kVectorBytes));
    for (const std::byte* source : call_.sources.subspan(1)) {
      from = source + offset;
      a = fold(a, load(from));
      b = fold(b, load(from + kVectorBytes));
      c = fold(c, load(from + 2 * kVectorBytes));
      d = fold(d, load(from + 3 * kVectorBytes));
    }
    const ByteVector results[4] = {finish(a), finish(b), finish(c), finish(d)};
    for (std::byte* destination : call_.destinations)
      store_block<kStreaming>(results, destination + offset);
  }

  template <bool kStreaming>
  static HWY_INLINE void store_block(const ByteVector (&results)[4], std::byte* to) {
    if constexpr (kStreaming) {
      store_streaming(results[0], to);
      store_streaming(results[1], to + kVectorBytes);
      store_streaming(results[2], to + 2 * kVectorBytes);
      store_streaming(results[3], to + 3 * kVectorBytes);
    } else {
      store(results[0], to);
      store(results[1], to + kVectorBytes);
      store(results[2], to + 2 * kVectorBytes);
      store(results[3], to + 3 * kVectorBytes);
    }
  }

  // At most one vector.
  HWY_INLINE void few(std::size_t offset, std::size_t bytes) {
    Wide value = Format::widen(load_first(call_.sources[0] + offset, bytes));
    for (const std::byte* source : call_.sources.subspan(1))
      value = fold(value, load_first(source + offset, bytes));
    const ByteVector result = finish(value);
    for (std::byte* destination : call_.destinations)
      store_first(result, destination + offset, bytes);
  }

  static HWY_INLINE Wide fold(Wide sum, ByteVector next) {
    return Format::template combine<Op>(sum, Format::widen(next));
  }

  HWY_INLINE ByteVector finish(Wide value) const {
    if (call_.divisor == 1) return Format::narrow(value);
    return Format::narrow(Format::divide(value, call_.divisor));
  }

  const ReduceCall& call_;
};

// The entry for one element type: picks the loop of the operation.
template <class Format>
void reduce_as(const ReduceCall& call, std::size_t element_bytes) {
  const std::size_t bytes = call.count * element_bytes;
  switch (call.op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return Reducer<Format, SumOp>(call).run(bytes, element_bytes);
    case ReduceOp::prod:
      return Reducer<Format, ProdOp>(call).run(bytes, element_bytes);
    case ReduceOp::min:
      return Reducer<Format, MinOp>(call).run(bytes, element_bytes);
    case ReduceOp::max:
      return Reducer<Format, MaxOp>(call).run(bytes, element_bytes);
  }
}

}  // namespace tutti::runtime::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
