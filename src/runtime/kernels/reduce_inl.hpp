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
  explicit Reducer(const ReduceCall& call)
      : call_(call), bends_(call.tree && call.sources.size() > 3) {}

  void run(std::size_t bytes, std::size_t element_bytes) {
    if (bytes <= kVectorBytes) return few(0, bytes);
    const StoreHint stores = in_place() ? StoreHint::cached : call_.stores;
    const Start start = plan_start(call_.destinations, bytes, element_bytes, stores);
    const std::size_t ahead = claim_ahead_bytes(bytes, call_.destinations.size());
    if (!start.streaming) claim(call_.destinations, 0, std::min(bytes, ahead));
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
  static constexpr std::size_t kTreeDepth = 32;  // of more sources than ranks can be

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
    if (call_.sources.size() == 2 && call_.destinations.size() <= 2)
      return run_pairs(offset, bytes);
    return for_blocks(call_.destinations, offset, bytes,
                      [this](std::size_t at) HWY_ATTR { block<false>(at); });
  }

  // The same for two sources, as most steps have: with all pointers in registers, because a
  // compiler must take every store for one that may change the call.
  std::size_t run_pairs(std::size_t offset, std::size_t bytes) {
    const std::byte* const a = call_.sources[0];
    const std::byte* const b = call_.sources[1];
    std::byte* const first = call_.destinations[0];
    std::byte* const second = call_.destinations.back() == first ? nullptr : call_.destinations[1];
    const int divisor = call_.divisor;
    return for_blocks(call_.destinations, offset, bytes, [=](std::size_t at) HWY_ATTR {
      const Four sum = combine_four(load_four(a + at), load_four(b + at));
      const ByteVector results[4] = {divided(sum.a, divisor), divided(sum.b, divisor),
                                     divided(sum.c, divisor), divided(sum.d, divisor)};
      store_block<false>(results, first + at);
      if (second != nullptr) store_block<false>(results, second + at);
    });
  }

  // Four vectors: enough independent work to hide the latency of the arithmetic. They are four
  // variables, not an array, because compilers keep variables in registers.
  struct Four {
    Wide a;
    Wide b;
    Wide c;
    Wide d;
  };

  static HWY_INLINE Four load_four(const std::byte* from) {
    return {Format::widen(load(from)), Format::widen(load(from + kVectorBytes)),
            Format::widen(load(from + 2 * kVectorBytes)),
            Format::widen(load(from + 3 * kVectorBytes))};
  }

  static HWY_INLINE Four combine_four(const Four& x, const Four& y) {
    return {combine(x.a, y.a), combine(x.b, y.b), combine(x.c, y.c), combine(x.d, y.d)};
  }

  template <bool kStreaming>
  HWY_INLINE void block(std::size_t offset) {
    if (bends_) return store_four<kStreaming>(tree_of_blocks(offset), offset);
    Four sum = load_four(call_.sources[0] + offset);
    for (const std::byte* source : call_.sources.subspan(1))
      sum = combine_four(sum, load_four(source + offset));
    store_four<kStreaming>(sum, offset);
  }

  template <bool kStreaming>
  HWY_INLINE void store_four(const Four& sum, std::size_t offset) {
    const ByteVector results[4] = {finish(sum.a), finish(sum.b), finish(sum.c), finish(sum.d)};
    for (std::byte* destination : call_.destinations)
      store_block<kStreaming>(results, destination + offset);
  }

  // At most one vector.
  void few(std::size_t offset, std::size_t bytes) {
    const auto read = [=](const std::byte* source)
                          HWY_ATTR { return Format::widen(load_first(source + offset, bytes)); };
    Wide value = read(call_.sources[0]);
    if (bends_)
      value = fold_tree<Wide>(read,
                              [](const Wide& x, const Wide& y) HWY_ATTR { return combine(x, y); });
    else
      for (const std::byte* source : call_.sources.subspan(1)) value = combine(value, read(source));
    const ByteVector result = finish(value);
    for (std::byte* destination : call_.destinations)
      store_first(result, destination + offset, bytes);
  }

  // Not inlined, so that the loop over few sources keeps its registers to itself.
  HWY_NOINLINE Four tree_of_blocks(std::size_t offset) {
    return fold_tree<Four>(
        [=](const std::byte* source) HWY_ATTR { return load_four(source + offset); },
        [](const Four& x, const Four& y) HWY_ATTR { return combine_four(x, y); });
  }

  // Sums of equally many sources are added as they come, like the carry of a binary counter; what
  // is left at the end from the right.
  template <class Sum, class Read, class Combine>
  HWY_INLINE Sum fold_tree(const Read& read, const Combine& add) {
    Sum stack[kTreeDepth];
    std::size_t depth = 0;
    for (std::size_t i = 0; i < call_.sources.size(); ++i) {
      Sum sum = read(call_.sources[i]);
      for (std::size_t pairs = i; pairs & 1; pairs >>= 1) sum = add(stack[--depth], sum);
      stack[depth++] = sum;
    }
    Sum sum = stack[--depth];
    while (depth > 0) sum = add(stack[--depth], sum);
    return sum;
  }

  static HWY_INLINE Wide combine(const Wide& sum, const Wide& next) {
    return Format::template combine<Op>(sum, next);
  }

  HWY_INLINE ByteVector finish(Wide value) const { return divided(value, call_.divisor); }

  static HWY_INLINE ByteVector divided(Wide value, int divisor) {
    if (divisor == 1) return Format::narrow(value);
    return Format::narrow(Format::divide(value, divisor));
  }

  const ReduceCall& call_;
  const bool bends_;  // up to three sources, the tree is a chain
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
