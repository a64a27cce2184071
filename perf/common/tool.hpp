// tool.hpp: what one perf tool says of its collective: how large the buffers are, how it is called,
// which rank must hold what afterwards, and how busbw is counted. Everything else is shared.
//
// Each tool is a file in perf/tools/ and a line in tools() below.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "perf/common/data.hpp"
#include "perf/common/operation.hpp"
#include "tutti/communicator.hpp"

namespace tutti::perf {

// One call's buffers on one rank. Units: elements.
struct Shape {
  std::size_t count = 0;  // what the API is given
  std::size_t input = 0;
  std::size_t output = 0;
  // In place, one buffer holds both: rank r's input begins at r * input_stride, its output at
  // r * output_stride.
  std::size_t input_stride = 0;
  std::size_t output_stride = 0;
};

struct Call {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  Reduction op = ReduceOp::sum;
  Rank root = 0;
};

// `count` elements of a rank's output, which must be those of `source` (a rank or kReduced) from
// `first` on.
struct Piece {
  Rank source = 0;
  std::size_t first = 0;
  std::size_t count = 0;
};

struct Tool {
  std::string_view name;
  Collective collective = Collective::all_reduce;
  bool in_place = true;  // whether the library allows it
  // For buffers of at most `elements`; element_bytes because blocks are multiples of 16 bytes.
  Shape (*shape)(std::size_t elements, std::size_t element_bytes, int ranks) = nullptr;
  Status (*call)(Communicator& communicator, const Call& call) = nullptr;
  Result<Work> (*start)(Communicator& communicator, const Call& call) = nullptr;
  // The output of `rank`, in order, as far as it is defined.
  std::vector<Piece> (*expected)(const Shape& shape, Rank rank, int ranks, Rank root) = nullptr;
  double (*busbw_factor)(int ranks) = nullptr;
  // Of `size` what counts for algbw; null: all.
  double (*algbw_factor)(int ranks) = nullptr;
  // Whether so many ranks can do it, or why not; null: any can.
  Status (*serves)(int ranks) = nullptr;
};

const Tool& all_reduce_tool();
const Tool& all_gather_tool();
const Tool& reduce_scatter_tool();
const Tool& broadcast_tool();
const Tool& reduce_tool();
const Tool& gather_tool();
const Tool& scatter_tool();
const Tool& alltoall_tool();
const Tool& alltoallv_tool();
const Tool& sendrecv_tool();
const Tool& hypercube_tool();

std::vector<const Tool*> tools();

// ---- Shared by several tools ----

// Buffers of the same size everywhere, used as they are.
inline Shape whole(std::size_t elements, std::size_t /*element_bytes*/, int /*ranks*/) {
  return {elements, elements, elements, 0, 0};
}

// Elements of each rank's block, where `elements` are split among ranks: whole lines of 16 bytes,
// so that all blocks are aligned. 0 when that leaves nothing.
inline std::size_t block(std::size_t elements, std::size_t element_bytes, int ranks) {
  const std::size_t per_line = 16 / element_bytes;
  return elements / static_cast<std::size_t>(ranks) / per_line * per_line;
}

// A block of each rank on one side, all of them on the other.
inline Shape blocks_to_all(std::size_t elements, std::size_t element_bytes, int ranks) {
  const std::size_t each = block(elements, element_bytes, ranks);
  return {each, each, each * static_cast<std::size_t>(ranks), each, 0};
}
inline Shape all_to_blocks(std::size_t elements, std::size_t element_bytes, int ranks) {
  const std::size_t each = block(elements, element_bytes, ranks);
  return {each, each * static_cast<std::size_t>(ranks), each, 0, each};
}

// The part of moved data that is not a rank's own already.
inline double others(int ranks) { return static_cast<double>(ranks - 1) / ranks; }
inline double once(int /*ranks*/) { return 1; }

}  // namespace tutti::perf
