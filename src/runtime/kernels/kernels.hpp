// kernels.hpp: the only arithmetic in the library. Folding several buffers into one value and
// storing it into several buffers, in one pass over memory, is what makes shared memory fast:
// every byte is read once and written once, whatever the number of peers.
//
// Knows nothing of ranks, schedules or threads: it sees pointers and counts, on the calling
// thread. Which vector instructions do the work is decided once, at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tutti/types.hpp"

namespace tutti::runtime::kernels {

// Where stores should go. `streaming` bypasses the caches: right for destinations that do not fit
// them and that nobody reads soon, much slower for those that do fit. `string` copies as the C
// library does, whose large copies are the processor's string instruction: it goes through the
// caches, and need not fetch the lines that it fills. `unclaimed` goes through the caches, too, but
// asks for no line before it is stored; `paged` neither, and goes through several pages at once.
// These are wishes: destinations below 4 KiB, or in place, do not stream; sums know no `string`,
// and of more than two sources nothing `paged`, which is then `unclaimed`; copies know nothing
// `unclaimed`.
// Streamed bytes are visible to whoever sees a later store of the calling thread, as others are.
enum class StoreHint : std::uint8_t { cached, streaming, string, unclaimed, paged };

// One pass: destinations[d][i] = sources[0][i] op sources[1][i] op ..., for every d.
// Requires: at least one source and one destination; a destination is equal to a source (in
// place) or overlaps none; no two destinations overlap. Pointers need no alignment.
struct ReduceCall {
  DataType type;
  ReduceOp op;
  std::span<const std::byte* const> sources;
  std::span<std::byte* const> destinations;
  std::size_t count;  // elements
  int divisor = 1;    // more than 1 only for avg, in the step that completes the sum
  StoreHint stores = StoreHint::cached;
  // Fold along the canonical tree over the sources instead of one after the other: the left part is
  // the largest power of two below their number, and so on within both parts.
  bool tree = false;
};

// Does what `call` says.
// Ensures: the fold runs from the first source to the last, or along the tree, so that the result
// is the same bit for bit on every processor. Products and sums are never contracted. 16- and 8-bit
// floats are folded, and divided, in float32 and rounded once to nearest even; what is too large
// for 8 bits, infinity included, becomes the largest finite value of its sign. Integers wrap
// around; their averages truncate toward zero. min and max are IEEE 754-2019 minimum and maximum: a
// NaN wins, and -0 is less than +0. Subnormals are kept. Which NaN a NaN is (sign, payload) is not
// specified.
void reduce(const ReduceCall& call);

// Copies `bytes` bytes into every destination.
// Requires: as for reduce; a destination equal to the source is allowed.
void copy(const std::byte* source, std::span<std::byte* const> destinations, std::size_t bytes,
          StoreHint stores = StoreHint::cached);

// Divides `count` elements in place, rounded as an average is.
// Requires: divisor >= 1.
void divide(DataType type, std::byte* data, std::size_t count, int divisor);

// The name of the instruction set in use, such as "AVX3" or "NEON".
std::string_view active_target();

}  // namespace tutti::runtime::kernels
