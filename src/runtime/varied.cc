// Checks what the user says about blocks, and lays programs out for groups of transfers.
#include "runtime/varied.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/assert.hpp"

namespace tutti::runtime {
namespace {

using collectives::LoweredOperand;
using collectives::LoweredProgram;
using collectives::LoweredStep;

Status refuse(std::string text) { return Status(StatusCode::invalid_argument, std::move(text)); }

// Blocks that hold something, in the order of their addresses.
std::vector<Block> in_order(std::span<const Block> blocks) {
  std::vector<Block> sorted;
  for (const Block& block : blocks)
    if (block.count > 0) sorted.push_back(block);
  std::sort(sorted.begin(), sorted.end(),
            [](const Block& a, const Block& b) { return std::less<>()(a.memory, b.memory); });
  return sorted;
}

std::uintptr_t begin_of(const Block& block) {
  return reinterpret_cast<std::uintptr_t>(block.memory);
}

LoweredOperand memory_operand(Buffer buffer, int chunk) {
  LoweredOperand operand;
  operand.buffer = buffer;
  operand.chunk = chunk;
  return operand;
}

// The next message of a directed stream.
LoweredOperand message_operand(LoweredProgram& program, Rank peer, bool sends) {
  auto known = std::find(program.peers.begin(), program.peers.end(), peer);
  const auto stream = known - program.peers.begin();
  if (known == program.peers.end()) {
    program.peers.push_back(peer);
    program.sends.push_back(0);
    program.receives.push_back(0);
  }
  LoweredOperand operand;
  operand.kind = Operand::Kind::message;
  operand.stream = static_cast<std::int32_t>(stream);
  operand.ordinal = (sends ? program.sends : program.receives)[static_cast<std::size_t>(stream)]++;
  return operand;
}

void add_copy(LoweredProgram& program, const LoweredOperand& source,
              const LoweredOperand& destination) {
  LoweredStep step;
  step.landing = destination.kind == Operand::Kind::chunks ? 0 : -1;
  step.sources = {source};
  step.destinations = {destination};
  program.steps.push_back(std::move(step));
}

// What a rank sends to itself: block numbers of the input and of the output.
struct ToItself {
  std::vector<int> sends;
  std::vector<int> receives;
};

Status pair_up(const ToItself& own, Exchange& exchange, Rank rank) {
  if (own.sends.size() != own.receives.size())
    return refuse(fmt::format("rank {} sends itself {} messages and receives {} from itself", rank,
                              own.sends.size(), own.receives.size()));
  for (std::size_t i = 0; i < own.sends.size(); ++i) {
    const Block& from = exchange.blocks.at(Buffer::input, own.sends[i]);
    const Block& to = exchange.blocks.at(Buffer::output, own.receives[i]);
    if (from.count != to.count)
      return refuse(
          fmt::format("rank {} sends itself {} bytes and receives {}", rank, from.count, to.count));
    add_copy(exchange.program, memory_operand(Buffer::input, own.sends[i]),
             memory_operand(Buffer::output, own.receives[i]));
  }
  return {};
}

}  // namespace

Result<std::vector<Block>> layout_blocks(std::byte* memory, const BlockLayout& layout, int ranks,
                                         DataType type, bool written) {
  const auto n = static_cast<std::size_t>(ranks);
  const char* what = written ? "output" : "input";
  if (layout.counts.size() != n)
    return refuse(fmt::format("{} counts for the {} of {} ranks", layout.counts.size(), what, n));
  if (!layout.displacements.empty() && layout.displacements.size() != n)
    return refuse(fmt::format("{} displacements for the {} of {} ranks; give one for each, or none",
                              layout.displacements.size(), what, n));
  const std::size_t limit = std::numeric_limits<std::ptrdiff_t>::max() / size_of(type);
  std::vector<Block> blocks(n);
  std::size_t packed = 0;
  for (std::size_t p = 0; p < n; ++p) {
    const std::size_t count = layout.counts[p];
    const std::size_t begin = layout.displacements.empty() ? packed : layout.displacements[p];
    if (count > limit || begin > limit - count)
      return refuse(
          fmt::format("block {} of the {}: {} elements at {} are more than memory can hold", p,
                      what, count, begin));
    if (count > 0 && memory == nullptr) return refuse(fmt::format("{} is null", what));
    // Never beyond null: that a block is empty is no reason to compute with it.
    blocks[p] = {memory == nullptr ? nullptr : memory + begin * size_of(type), count};
    packed = begin + count;
  }
  if (!written) return blocks;
  const std::vector<Block> sorted = in_order(blocks);
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (begin_of(sorted[i - 1]) + sorted[i - 1].count * size_of(type) > begin_of(sorted[i]))
      return refuse("blocks of the output overlap");
  return blocks;
}

std::size_t total(std::span<const Block> blocks) {
  std::size_t elements = 0;
  for (const Block& block : blocks) elements += block.count;
  return elements;
}

// FNV-1a over the counts.
std::uint64_t hash_of_counts(std::span<const Block> blocks) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Block& block : blocks)
    for (std::size_t shift = 0; shift < 64; shift += 8)
      hash = (hash ^ ((static_cast<std::uint64_t>(block.count) >> shift) & 0xff)) * 0x100000001b3;
  return hash;
}

bool overlap(std::span<const Block> a, std::span<const Block> b, DataType type) {
  const std::vector<Block> first = in_order(a);
  const std::vector<Block> second = in_order(b);
  std::size_t j = 0;
  for (const Block& block : first) {
    const std::uintptr_t end = begin_of(block) + block.count * size_of(type);
    while (j < second.size() &&
           begin_of(second[j]) + second[j].count * size_of(type) <= begin_of(block))
      ++j;
    if (j < second.size() && begin_of(second[j]) < end) return true;
  }
  return false;
}

Result<Exchange> make_exchange(int ranks, Rank rank, std::span<const Transfer> transfers) {
  Exchange exchange;
  LoweredProgram& program = exchange.program;
  program.shape.collective = Collective::send_recv;
  program.shape.ranks = ranks;
  program.rank = rank;
  ToItself own;
  for (const Transfer& transfer : transfers) {
    const Buffer buffer = transfer.sends ? Buffer::input : Buffer::output;
    std::vector<Block>& blocks = transfer.sends ? exchange.blocks.input : exchange.blocks.output;
    const int chunk = static_cast<int>(blocks.size());
    blocks.push_back({transfer.memory, transfer.bytes});
    if (transfer.peer == rank) {
      (transfer.sends ? own.sends : own.receives).push_back(chunk);
      continue;
    }
    const LoweredOperand memory = memory_operand(buffer, chunk);
    const LoweredOperand message = message_operand(program, transfer.peer, transfer.sends);
    if (transfer.sends)
      add_copy(program, memory, message);
    else
      add_copy(program, message, memory);
  }
  if (Status status = pair_up(own, exchange, rank); !status.ok()) return status;
  return exchange;
}

}  // namespace tutti::runtime
