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
    const StoreHint stores = in_place() ? StoreHint::cached : call_.stores;
    const Start start = plan_start(call_.destinations, bytes, element_bytes, stores);
    if (!start.streaming) claim(call_.destinations, 0, std::min(bytes, kClaimAheadBytes));
    if (start.head > 0) few(0, start.head);
    std::size_t offset = start.head;
    if constexpr (kBlocks) {
      if (start.streaming) offset = stream_pages(offset, bytes);
      offset = run_blocks(offset, bytes);
    }
    for (; offset < bytes; offset += kVectorBytes)
      few(offset, std::min(kVectorBytes, bytes - offset));
  }

 private:
  using Wide = typename Format::Wide;

  // A destination that was just read is in the caches; streaming would only throw it out.
  bool in_place() const {
    for (const std::byte* destination : call_.destinations)
      for (const std::byte* source : call_.sources)
        if (source == destination) return true;
    return false;
  }

  std::size_t stream_pages(std::size_t offset, std::size_t bytes) {
    for (; offset + kPageGroupBytes <= bytes; offset += kPageGroupBytes)
      for (std::size_t in_page = 0; in_page < kPageBytes; in_page += kBlockBytes)
        for (std::size_t page = offset; page < offset + kPageGroupBytes; page += kPageBytes)
          block<true>(page + in_page);
    hwy::FlushStream();
    return offset;
  }

  std::size_t run_blocks(std::size_t offset, std::size_t bytes) {
    return for_blocks(call_.destinations, offset, bytes,
                      [this](std::size_t at) HWY_ATTR { block<false>(at); });
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

  // At most one vector.
  void few(std::size_t offset, std::size_t bytes) {
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
