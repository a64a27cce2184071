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
#include <array>
#include <cstddef>
#include <span>

#include "runtime/kernels/formats_inl.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/kernels/memory_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::runtime::kernels::HWY_NAMESPACE {

template <class Format, class Op>
class Reducer {
 public:
  explicit Reducer(const ReduceCall& call)
      : call_(call),
        bends_(call.tree && call.sources.size() > 3),
        claims_(call.stores != StoreHint::unclaimed && call.stores != StoreHint::paged) {}

  void run(std::size_t bytes, std::size_t element_bytes) {
    if (bytes <= kBytes) return few(0, bytes);
    const bool streams = call_.stores == StoreHint::streaming && !in_place();
    const StoreHint stores = streams ? StoreHint::streaming : StoreHint::cached;
    if (stores == StoreHint::streaming && !in_phase(call_.destinations))
      return run_in_turns(bytes, element_bytes);
    pass(0, bytes, element_bytes, stores);
  }

 private:
  using Wide = typename Format::Wide;
  using Memory = typename Format::Memory;
  using Vector = hn::Vec<Memory>;
  static constexpr std::size_t kBytes = hn::MaxLanes(Memory());  // of a vector in memory
  static constexpr std::size_t kBlockBytes = 4 * kBytes;
  static constexpr std::size_t kStepBytes = 4 * kVectorBytes;  // of the loop: one block, or several
  using Sources = std::span<const std::byte* const>;
  using Destinations = std::span<std::byte* const>;
  static constexpr bool kConverts = sizeof(Wide) != kBytes;  // elements are computed with as others
  static constexpr std::size_t kTreeDepth = 32;              // of more sources than ranks can be

  // Loops of their own for two, four and eight sources; not of 8-bit floats, whose long arithmetic
  // would make them most of a megabyte.
  static constexpr bool kLoopsForFew = sizeof(Wide) <= 2 * kBytes;

  // A destination that was just read is in the caches; streaming would only throw it out.
  bool in_place() const {
    for (const std::byte* destination : call_.destinations)
      for (const std::byte* source : call_.sources)
        if (source == destination) return true;
    return false;
  }

  void pass(std::size_t offset, std::size_t end, std::size_t element_bytes, StoreHint stores) {
    const Start start = plan_start(call_.destinations, end - offset, element_bytes, stores);
    const std::size_t ahead = claim_ahead_bytes(end - offset, call_.destinations.size());
    if (!start.streaming && claims_)
      claim(call_.destinations, offset, std::min(end, offset + ahead));
    vectors(offset, offset + start.head);
    offset += start.head;
    if constexpr (kBlocks) offset = run_blocks(offset, end, start.streaming);
    vectors(offset, end);
  }

  void vectors(std::size_t offset, std::size_t end) {
    for (; offset < end; offset += kBytes) few(offset, std::min(kBytes, end - offset));
  }

  // One destination at a time. A turn moves it by whole vectors, which keeps its phase.
  void run_in_turns(std::size_t bytes, std::size_t element_bytes) {
    static_assert(kTurnBytes % kVectorBytes == 0);
    for (std::size_t offset = 0; offset < bytes; offset += kTurnBytes)
      for (std::byte* const& destination : call_.destinations) {
        ReduceCall turn = call_;
        turn.destinations = {&destination, 1};
        Reducer(turn).pass(offset, std::min(bytes, offset + kTurnBytes), element_bytes,
                           StoreHint::streaming);
      }
  }

  std::size_t run_blocks(std::size_t offset, std::size_t bytes, bool streaming) {
    const Sources sources = call_.sources;
    if constexpr (kLoopsForFew) {
      switch (sources.size()) {
        case 2:
          if (call_.stores == StoreHint::paged)
            offset = run_pages(FewSources<2>(sources), offset, bytes);
          return run_fold(FewSources<2>(sources), offset, bytes, streaming);
        case 4:
          return bends_ ? run_fold(FewSources<4, true>(sources), offset, bytes, streaming)
                        : run_fold(FewSources<4>(sources), offset, bytes, streaming);
        case 8:
          if (bends_) return run_fold(FewSources<8, true>(sources), offset, bytes, streaming);
      }
    }
    if (bends_) return run_fold(Tree{sources}, offset, bytes, streaming);
    return run_fold(Chain{sources}, offset, bytes, streaming);
  }

  // Every fold gets a loop that has it inlined, and all that the loop needs in variables of its
  // own: a compiler must take every store for one that may change the call.
  template <class Fold>
  std::size_t run_fold(const Fold& fold, std::size_t offset, std::size_t bytes, bool streaming) {
    if (streaming) offset = stream_pages(fold, offset, bytes);
    if constexpr (kByVectors<Fold>)
      if (!claims_ && call_.destinations.size() == 1)
        return store_by_vectors(fold, call_.divisor, call_.destinations.front(), offset, bytes);
    const Destinations destinations = call_.destinations;
    const int divisor = call_.divisor;
    const std::size_t ahead = claims_ ? claim_ahead_bytes(bytes, destinations.size()) : bytes;
    const std::size_t fetched = fetch_ahead_bytes(bytes, kConverts, destinations.size());
    for (; offset + kStepBytes <= bytes; offset += kStepBytes) {
      // Never beyond `bytes`: what lies there may be in use by another core.
      if (offset + kStepBytes + ahead <= bytes)
        claim(destinations, offset + ahead, offset + ahead + kStepBytes);
      if (offset + kStepBytes + fetched <= bytes) fold.fetch(offset + fetched);
      for (std::size_t at = offset; at < offset + kStepBytes; at += kBlockBytes)
        store_four<false>(fold(at), divisor, destinations, at);
    }
    for (; kBlockBytes < kStepBytes && offset + kBlockBytes <= bytes; offset += kBlockBytes)
      store_four<false>(fold(offset), divisor, destinations, offset);
    return offset;
  }

  template <class Fold>
  std::size_t run_pages(const Fold& fold, std::size_t offset, std::size_t bytes) {
    const Destinations destinations = call_.destinations;
    const int divisor = call_.divisor;
    if constexpr (kByVectors<Fold>)
      if (destinations.size() == 1)
        return pages_in_turn<kStepBytes>(
            offset, bytes, [=, to = destinations.front()](std::size_t step) HWY_ATTR {
              store_by_vectors(fold, divisor, to, step, step + kStepBytes);
            });
    return pages_in_turn<kStepBytes>(offset, bytes, [&](std::size_t step) HWY_ATTR {
      for (std::size_t at = step; at < step + kStepBytes; at += kBlockBytes)
        store_four<false>(fold(at), divisor, destinations, at);
    });
  }

  // Where no lines are asked for ahead, a processor has as many loads under way as it sees of what
  // follows, which is more when a vector is stored before the next one is loaded. Between far cores
  // of a Zen 5 that is worth 6 to 10 % of 512 KiB, and of pages in turn on an Emerald Rapids 1 to
  // 9 %; where lines are claimed, nothing.
  template <class Fold>
  static constexpr bool kByVectors = !kConverts && requires(const Fold& fold) {
    fold.one(0);
  };

  template <class Fold>
  static HWY_INLINE std::size_t store_by_vectors(const Fold& fold, int divisor, std::byte* to,
                                                 std::size_t offset, std::size_t end) {
    for (; offset + kBytes <= end; offset += kBytes)
      store(divided(fold.one(offset), divisor), to + offset);
    return offset;
  }

  template <class Fold>
  HWY_INLINE std::size_t stream_pages(const Fold& fold, std::size_t offset, std::size_t bytes) {
    const Destinations destinations = call_.destinations;
    const int divisor = call_.divisor;
    return stream<kBytes>(
        offset, bytes,
        [&](std::size_t at) HWY_ATTR { store_four<true>(fold(at), divisor, destinations, at); },
        [&](std::size_t at) HWY_ATTR {
          const Vector result = divided(fold_first(at, kBytes), divisor);
          for (std::byte* destination : destinations) store_streaming(result, destination + at);
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
    return {read(from), read(from + kBytes), read(from + 2 * kBytes), read(from + 3 * kBytes)};
  }

  static HWY_INLINE Wide read(const std::byte* from) { return Format::widen(load<Memory>(from)); }

  static HWY_INLINE Four combine_four(const Four& x, const Four& y) {
    return {combine(x.a, y.a), combine(x.b, y.b), combine(x.c, y.c), combine(x.d, y.d)};
  }

  template <bool kStreaming>
  static HWY_INLINE void store_four(const Four& sum, int divisor, Destinations destinations,
                                    std::size_t offset) {
    const Vector results[4] = {divided(sum.a, divisor), divided(sum.b, divisor),
                               divided(sum.c, divisor), divided(sum.d, divisor)};
    for (std::byte* destination : destinations)
      store_block<kStreaming>(results, destination + offset);
  }

  // The fold of a block of kCount sources, along the tree (of a power of two of them) or not.
  template <std::size_t kCount, bool kTree = false>
  class FewSources {
   public:
    explicit FewSources(Sources sources) { std::copy_n(sources.begin(), kCount, from_.begin()); }

    HWY_INLINE Four operator()(std::size_t offset) const {
      return {fold<0, kCount>(offset), fold<0, kCount>(offset + kBytes),
              fold<0, kCount>(offset + 2 * kBytes), fold<0, kCount>(offset + 3 * kBytes)};
    }

    HWY_INLINE Wide one(std::size_t offset) const { return fold<0, kCount>(offset); }

    HWY_INLINE void fetch(std::size_t offset) const {
      for (const std::byte* from : from_) fetch_lines(from + offset, kStepBytes);
    }

   private:
    // One vector at a time, which takes the fewest registers.
    template <std::size_t kFirst, std::size_t kSources>
    HWY_INLINE Wide fold(std::size_t offset) const {
      if constexpr (kSources == 1) {
        return read(from_[kFirst] + offset);
      } else {
        constexpr std::size_t kLeft = kTree ? kSources / 2 : kSources - 1;
        return combine(fold<kFirst, kLeft>(offset), fold<kFirst + kLeft, kSources - kLeft>(offset));
      }
    }

    std::array<const std::byte*, kCount> from_;
  };

  struct Chain {
    Sources sources;

    HWY_INLINE Four operator()(std::size_t offset) const {
      Four sum = load_four(sources[0] + offset);
      for (const std::byte* source : sources.subspan(1))
        sum = combine_four(sum, load_four(source + offset));
      return sum;
    }
    HWY_INLINE void fetch(std::size_t offset) const {
      for (const std::byte* source : sources) fetch_lines(source + offset, kStepBytes);
    }
  };

  struct Tree {
    Sources sources;

    // Not inlined, because it is long, and there are two loops.
    HWY_NOINLINE Four operator()(std::size_t offset) const {
      const auto leaf = [=, this](std::size_t i) HWY_ATTR {
        const Sources rest = sources.subspan(4 * i);
        if (rest.size() < 4) return Chain{rest}(offset);
        return FewSources<4, true>(rest)(offset);
      };
      return fold_tree<Four>((sources.size() + 3) / 4, leaf,
                             [](const Four& x, const Four& y)
                                 HWY_ATTR { return combine_four(x, y); });
    }
    HWY_INLINE void fetch(std::size_t offset) const { Chain{sources}.fetch(offset); }
  };

  // At most one vector.
  void few(std::size_t offset, std::size_t bytes) {
    const Vector result = divided(fold_first(offset, bytes), call_.divisor);
    for (std::byte* destination : call_.destinations)
      store_first(result, destination + offset, bytes);
  }

  Wide fold_first(std::size_t offset, std::size_t bytes) const {
    const auto read = [=, this](std::size_t i) HWY_ATTR {
      return Format::widen(load_first<Memory>(call_.sources[i] + offset, bytes));
    };
    const std::size_t sources = call_.sources.size();
    if (bends_)
      return fold_tree<Wide>(sources, read,
                             [](const Wide& x, const Wide& y) HWY_ATTR { return combine(x, y); });
    Wide value = read(0);
    for (std::size_t i = 1; i < sources; ++i) value = combine(value, read(i));
    return value;
  }

  // Leaves are single sources, or groups of a power of two of which only the last one may be
  // smaller. Sums of equally many are added as they come, like the carry of a binary counter; what
  // is left at the end from the right.
  template <class Sum, class Leaf, class Add>
  static HWY_INLINE Sum fold_tree(std::size_t leaves, const Leaf& leaf, const Add& add) {
    Sum stack[kTreeDepth];
    std::size_t depth = 0;
    for (std::size_t i = 0; i < leaves; ++i) {
      Sum sum = leaf(i);
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

  static HWY_INLINE Vector divided(Wide value, int divisor) {
    if (divisor == 1) return Format::narrow(value);
    return Format::narrow(Format::divide(value, divisor));
  }

  const ReduceCall& call_;
  const bool bends_;  // up to three sources, the tree is a chain
  const bool claims_;
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
