// varied.hpp: calls whose blocks differ in size or lie anywhere, from what the user says to the
// blocks and programs that the executor runs.
//
// Knows counts and addresses; nothing of transports, planning or waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/plan.hpp"
#include "runtime/blocks.hpp"
#include "tutti/communicator.hpp"

namespace tutti::runtime {

// One message of a group of sends and receives.
struct Transfer {
  Rank peer = 0;
  bool sends = true;  // or receives
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

// One block for each rank. Errors  invalid_argument: not one count for each rank, memory is null
// where there is something to read or write, blocks that are written overlap, sizes past memory.
Result<std::vector<Block>> layout_blocks(std::byte* memory, const BlockLayout& layout, int ranks,
                                         DataType type, bool written);

// The elements of all blocks.
std::size_t total(std::span<const Block> blocks);

// A number that differs when the sizes do: part of what ranks must agree on.
std::uint64_t hash_of_counts(std::span<const Block> blocks);

// True when some byte belongs to both.
bool overlap(std::span<const Block> a, std::span<const Block> b, DataType type);

// A group of transfers: its k-th send is block k of the input, its k-th receive block k of the
// output. What a rank sends to itself it receives itself, in order.
struct Exchange {
  Blocks blocks;  // in bytes
  collectives::LoweredProgram program;
};

// Requires  peers that exist. Errors  invalid_argument: what a rank sends itself and what it
// receives from itself do not go together.
Result<Exchange> make_exchange(int ranks, Rank rank, std::span<const Transfer> transfers);

}  // namespace tutti::runtime
