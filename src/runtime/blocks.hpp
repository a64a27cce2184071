// blocks.hpp: where the blocks of a call lie when they differ in size, or are anywhere: the
// collectives whose names end in _v, and groups of sends and receives.
//
// Chunk k of a buffer is then block k. A block is cut into slices of one size, so that both ends of
// a message, who know its length, know how many slices it has without knowing any other block.
//
// Knows nothing of programs, streams or bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/schedule.hpp"

namespace tutti::runtime {

struct Block {
  std::byte* memory = nullptr;
  std::size_t count = 0;  // elements
};

struct Blocks {
  std::vector<Block> input;
  std::vector<Block> output;

  const Block& at(Buffer buffer, int chunk) const {
    return (buffer == Buffer::input ? input : output)[static_cast<std::size_t>(chunk)];
  }
};

// Messages are sent at least once, so that even an empty one is seen to have been sent.
inline std::uint32_t slices_of(std::size_t elements, std::size_t slice_elements) {
  const std::size_t slices = (elements + slice_elements - 1) / slice_elements;
  return static_cast<std::uint32_t>(std::max<std::size_t>(1, slices));
}

// The elements of a block that its slice has: none beyond the block's end.
inline std::size_t elements_in_slice(std::size_t elements, std::size_t slice,
                                     std::size_t slice_elements) {
  const std::size_t begin = std::min(elements, slice * slice_elements);
  return std::min(slice_elements, elements - begin);
}

}  // namespace tutti::runtime
