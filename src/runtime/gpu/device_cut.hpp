// device_cut.hpp: which elements a chunk is on one channel, in one slice: collectives/geometry.hpp
// once more, in the arithmetic that a device has. A test holds the two against each other.
//
// Units: elements, unless a name says bytes.
#pragma once

#include "runtime/gpu/device_world.hpp"

namespace tutti::runtime::gpu {

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};

struct Cut {
  std::uint64_t count = 0;  // of a block
  std::uint64_t slices = 1;
  std::uint32_t chunks = 1;
  std::uint32_t channels = 1;
  std::uint32_t channel = 0;

  // Part `index` of `parts`: from index * count / parts on. What the whole quotient leaves is less
  // than a part for each, so that small numbers are divided. Requires  the product of the parts
  // with the range fits 64 bits; kCountMax, kPartsMax and slices_needed() see to that.
  static TUTTI_HOST_DEVICE Range part(Range range, std::uint64_t index, std::uint64_t parts) {
    if (parts == 1) return range;
    const std::uint64_t each = divide(range.count, parts);
    const std::uint64_t left = range.count - each * parts;
    const std::uint64_t before = divide(index * left, parts);
    const std::uint64_t more = divide((index + 1) * left, parts) - before;
    return {range.begin + index * each + before, each + more};
  }

  // Most numbers are small, and devices divide those several times as fast.
  static TUTTI_HOST_DEVICE std::uint64_t divide(std::uint64_t a, std::uint64_t b) {
    if ((a | b) >> 32 != 0) return a / b;
    return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  }

  TUTTI_HOST_DEVICE Range of(std::uint32_t chunk, std::uint64_t slice) const {
    Range range{chunk / chunks * count, count};
    range = part(range, channel, channels);
    range = part(range, chunk % chunks, chunks);
    return part(range, slice, slices);
  }
};

TUTTI_HOST_DEVICE std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

// Payload of a slot that a message's chunks share: each begins at a multiple of `unit`.
TUTTI_HOST_DEVICE std::uint64_t usable_bytes(std::uint64_t slot_bytes, std::uint64_t unit,
                                             std::uint64_t chunks) {
  const std::uint64_t lost = chunks * unit;
  return slot_bytes > lost ? slot_bytes - lost : 0;
}

// The number of slices at which every message fits its slot; 0 when not even single elements do, or
// when there are too many to number their elements.
TUTTI_HOST_DEVICE std::uint64_t slices_needed(const ProgramHeader& program,
                                              const ControlShape& shape, std::uint64_t count,
                                              std::uint32_t element_bytes, std::uint32_t channels,
                                              Protocol protocol) {
  const bool flagged = protocol == Protocol::low_latency;
  const std::uint64_t together = program.message_chunks_max;
  const std::uint64_t bytes = flagged ? usable_bytes(shape.flagged_bytes, kUnitBytes, together)
                                      : usable_bytes(shape.slot_bytes, kVectorBytes, together);
  const std::uint64_t elements = bytes / (element_bytes * together);
  if (elements == 0) return 0;
  const std::uint64_t chunk = ceil_div(ceil_div(count, channels), program.chunks);
  const std::uint64_t slices = ceil_div(chunk, elements);
  if (count > kCountMax || slices > ~std::uint64_t{0} / 2 / (chunk + 1)) return 0;
  return slices == 0 ? 1 : slices;
}

// Small calls are better off with low latency: those whose every message fits one slot of it.
inline Protocol protocol_for(const ProgramHeader& program, const ControlShape& shape,
                             std::uint64_t count, std::uint32_t element_bytes,
                             std::uint32_t channels) {
  const std::uint64_t slices =
      slices_needed(program, shape, count, element_bytes, channels, Protocol::low_latency);
  return slices == 1 ? Protocol::low_latency : Protocol::simple;
}

}  // namespace tutti::runtime::gpu
