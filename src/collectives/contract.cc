// The meaning of each collective as a function from an output chunk to the atoms it holds.
#include "collectives/contract.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::collectives {
namespace {

// Bounds that keep all chunk numbers of a rank within an int.
constexpr int kRanksMax = 1 << 20;
constexpr int kChunksMax = 1 << 24;

Status refuse(std::string text) { return Status(StatusCode::invalid_argument, std::move(text)); }

bool has_block_per_rank(Collective collective, Buffer buffer) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::gather:
      return buffer == Buffer::output;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return buffer == Buffer::input;
    case Collective::all_to_all:
      return true;
    default:
      return false;
  }
}

// Chunk `chunk` of every rank.
std::vector<Atom> from_all(int ranks, int chunk) {
  std::vector<Atom> atoms;
  for (Rank rank = 0; rank < ranks; ++rank) atoms.push_back({rank, chunk});
  return atoms;
}

Requirement reduced(int ranks, int chunk) {
  return {Requirement::Rule::exactly, from_all(ranks, chunk), true};
}

Requirement moved(Rank rank, int chunk) {
  return {Requirement::Rule::exactly, {{rank, chunk}}, false};
}

}  // namespace

Status check_shape(const ScheduleShape& shape) {
  if (shape.ranks < 1 || shape.ranks > kRanksMax)
    return refuse(fmt::format("{} ranks; there must be 1 to {}", shape.ranks, kRanksMax));
  if (shape.chunks < 1 || shape.chunks > kChunksMax / shape.ranks)
    return refuse(fmt::format("{} chunks per block; there must be 1 to {}", shape.chunks,
                              kChunksMax / shape.ranks));
  if (shape.scratch_blocks < 0 || shape.scratch_blocks > kChunksMax / shape.chunks)
    return refuse(fmt::format("{} scratch blocks; there must be 0 to {}", shape.scratch_blocks,
                              kChunksMax / shape.chunks));
  if (shape.message_chunks_max < 1)
    return refuse(fmt::format("messages of at most {} chunks; there must be room for one",
                              shape.message_chunks_max));
  const bool rooted = has_root(shape.collective) || shape.collective == Collective::send_recv;
  if (rooted && (shape.root < 0 || shape.root >= shape.ranks))
    return refuse(fmt::format("root {} among {} ranks", shape.root, shape.ranks));
  if (shape.collective == Collective::barrier && shape.chunks != 1)
    return refuse(fmt::format("a barrier has one chunk, not {}", shape.chunks));
  return {};
}

int contract_chunks(const ScheduleShape& shape, Buffer buffer) {
  if (buffer == Buffer::scratch) return shape.scratch_blocks * shape.chunks;
  return has_block_per_rank(shape.collective, buffer) ? shape.ranks * shape.chunks : shape.chunks;
}

bool may_run_in_place(Collective collective) {
  return collective != Collective::all_to_all && collective != Collective::send_recv;
}

int contract_alias(const ScheduleShape& shape, Rank rank, int input_chunk) {
  if (!may_run_in_place(shape.collective)) return -1;
  const bool only_root =
      shape.collective == Collective::gather || shape.collective == Collective::scatter;
  if (only_root && rank != shape.root) return -1;
  const int own_block = rank * shape.chunks;
  if (has_block_per_rank(shape.collective, Buffer::output)) return own_block + input_chunk;
  if (!has_block_per_rank(shape.collective, Buffer::input)) return input_chunk;
  const bool own = input_chunk >= own_block && input_chunk < own_block + shape.chunks;
  return own ? input_chunk - own_block : -1;
}

bool has_content(const ScheduleShape& shape, Rank rank) {
  const bool only_root =
      shape.collective == Collective::broadcast || shape.collective == Collective::scatter;
  return !only_root || rank == shape.root;
}

Requirement required_output(const ScheduleShape& shape, Rank rank, int output_chunk) {
  const int block = output_chunk / shape.chunks;
  const int position = output_chunk % shape.chunks;
  const int own_block = rank * shape.chunks;
  switch (shape.collective) {
    case Collective::all_reduce:
      return reduced(shape.ranks, position);
    case Collective::reduce_scatter:
      return reduced(shape.ranks, own_block + position);
    case Collective::reduce:
      return rank == shape.root ? reduced(shape.ranks, position) : Requirement{};
    case Collective::all_gather:
      return moved(block, position);
    case Collective::broadcast:
      return moved(shape.root, position);
    case Collective::gather:
      return rank == shape.root ? moved(block, position) : Requirement{};
    case Collective::scatter:
      return moved(shape.root, own_block + position);
    case Collective::all_to_all:
      return moved(block, own_block + position);
    case Collective::send_recv:
      return moved((rank - shape.root + shape.ranks) % shape.ranks, position);
    case Collective::barrier:
      return {Requirement::Rule::at_least, from_all(shape.ranks, position), false};
  }
  return {};
}

}  // namespace tutti::collectives
