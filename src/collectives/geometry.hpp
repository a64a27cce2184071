// geometry.hpp: which elements a chunk is, once a call has said how many there are.
//
// A block of `count` elements is first cut into channels, a channel into the schedule's chunks, a
// chunk into slices: every cut is [⌊i·c/n⌋, ⌊(i+1)·c/n⌋), so that pieces differ by at most one
// element and nothing is rounded away. Slices of different number never share an element, which is
// why the executor may run them as independent copies of the schedule.
//
// Knows element numbers only. Units: elements, unless a name says bytes.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tutti/schedule.hpp"

namespace tutti::collectives {

struct ElementRange {
  std::size_t begin = 0;
  std::size_t count = 0;

  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Part `index` of `parts` of `range`.
inline ElementRange part(ElementRange range, std::size_t index, std::size_t parts) {
  // A quick division by nearly always; index * count may pass 2^64 for huge buffers.
  if (std::size_t most = 0; !__builtin_mul_overflow(index + 1, range.count, &most)) [[likely]] {
    const std::size_t begin = index * range.count / parts;
    return {range.begin + begin, most / parts - begin};
  }
  using Wide = unsigned __int128;
  const auto begin = static_cast<std::size_t>(Wide{index} * range.count / parts);
  const auto end = static_cast<std::size_t>(Wide{index + 1} * range.count / parts);
  return {range.begin + begin, end - begin};
}

class Geometry {
 public:
  Geometry() = default;
  Geometry(std::size_t count, int chunks, int channels, std::size_t slices)
      : count_(count),
        chunks_(static_cast<std::size_t>(chunks)),
        channels_(static_cast<std::size_t>(channels)),
        slices_(slices),
        pieces_of_block_(chunks_ * channels_ * slices_) {}

  // Slice `slice` of chunk `chunk` on `channel`, from the beginning of the buffer.
  ElementRange of(int chunk, int channel, std::size_t slice) const {
    const auto index = static_cast<std::size_t>(chunk);
    if (pieces_of_block_ == 1) return {index * count_, count_};
    return cut(index, static_cast<std::size_t>(channel), slice);
  }

  std::size_t slices() const { return slices_; }

 private:
  ElementRange cut(std::size_t chunk, std::size_t channel, std::size_t slice) const {
    const std::size_t block = chunk / chunks_;
    ElementRange range{block * count_, count_};
    if (channels_ > 1) range = part(range, channel, channels_);
    if (chunks_ > 1) range = part(range, chunk % chunks_, chunks_);
    if (slices_ > 1) range = part(range, slice, slices_);
    return range;
  }

  std::size_t count_ = 0;
  std::size_t chunks_ = 1;
  std::size_t channels_ = 1;
  std::size_t slices_ = 1;
  std::size_t pieces_of_block_ = 1;  // small calls are not cut at all, and need no division
};

// The number of slices at which no message exceeds `slice_bytes`; 0 when even single elements do,
// because a message holds too many chunks.
inline std::size_t slices_needed(const ScheduleShape& shape, std::size_t count,
                                 std::size_t element_bytes, int channels, std::size_t slice_bytes) {
  // Most calls are small: no division for them.
  if (count * element_bytes * static_cast<std::size_t>(shape.message_chunks_max) <= slice_bytes)
    return 1;
  const std::size_t per_message =
      slice_bytes / (element_bytes * static_cast<std::size_t>(shape.message_chunks_max));
  if (per_message == 0) return 0;
  auto ceil_div = [](std::size_t a, std::size_t b) { return (a + b - 1) / b; };
  const std::size_t chunk = ceil_div(ceil_div(count, static_cast<std::size_t>(channels)),
                                     static_cast<std::size_t>(shape.chunks));
  return std::max<std::size_t>(1, ceil_div(chunk, per_message));
}

}  // namespace tutti::collectives
