// Lays calls out, fills their inputs and judges their outputs. What is expected is folded by the
// host's kernels, from numbers that every order folds alike.
#include "cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/contract.hpp"
#include "runtime/kernels/kernels.hpp"
#include "tutti/numeric.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kGuardBytes = 32;
constexpr auto kUntouched = std::byte{0xa5};

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15U;
  value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9U;
  return value ^ value >> 32;
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Small enough for the coarsest format: of nine ranks, at most three have a 2.
void put_float(std::byte* to, DataType type, std::size_t rank, std::size_t i, ReduceOp op) {
  const bool two = (i + rank) % 3 == 0 && rank < 9;
  const float other = op == ReduceOp::prod ? 1.0f : op == ReduceOp::max ? -1.0f : 0.0f;
  const float value = two ? (op == ReduceOp::min ? -2.0f : i % 2 == 0 ? 2.0f : -2.0f) : other;
  switch (type) {
    case DataType::float16:
      return put(to, to_float16(value));
    case DataType::bfloat16:
      return put(to, to_bfloat16(value));
    case DataType::float8_e4m3:
      return put(to, to_float8_e4m3(value));
    case DataType::float8_e5m2:
      return put(to, to_float8_e5m2(value));
    case DataType::float64:
      return put(to, static_cast<double>(value));
    default:
      return put(to, value);
  }
}

std::size_t blocks_of(const ScheduleShape& shape, Buffer buffer) {
  return idx(collectives::contract_chunks(shape, buffer)) / idx(shape.chunks);
}

std::size_t padded(std::size_t bytes) { return (bytes + kGuardBytes + 63) / 64 * 64; }

}  // namespace

std::string CallCase::text() const {
  constexpr const char* kTravels[] = {"flagged", "staged", "direct", "mixed"};
  return fmt::format("{} x {} {}{} {} channels {} seed {}", count, to_string(type), to_string(op),
                     in_place ? " in place" : "", kTravels[static_cast<int>(travels)], channels,
                     seed);
}

std::size_t Trial::bytes_needed(const ScheduleShape& shape, const CallCase& what) {
  std::size_t bytes = 0;
  for (const Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch})
    bytes += padded(blocks_of(shape, buffer) * what.count * size_of(what.type)) + 64;
  return bytes;
}

Trial::Trial(const ScheduleShape& shape, const std::vector<EncodedProgram>& programs,
             const CallCase& what, std::vector<std::vector<std::byte>>& arenas, std::size_t offset)
    : shape_(shape), what_(what), block_bytes_(what.count * size_of(what.type)) {
  job_.programs = &programs;
  job_.type = what.type;
  job_.reduces = is_reduction(shape.collective);
  buffers_.resize(idx(shape.ranks));
  inputs_.resize(idx(shape.ranks));
  job_.calls.resize(idx(shape.ranks));
  for (std::size_t rank = 0; rank < idx(shape.ranks); ++rank) {
    lay_out(rank, arenas[rank].data() + offset);
    tell_call(rank, arenas[rank].data());
    fill(rank);
  }
}

// Now and then at addresses that allow no vectors.
void Trial::lay_out(std::size_t rank, std::byte* memory) {
  const std::size_t shift = mixed(what_.seed + rank) % 3 == 0 ? size_of(what_.type) : 0;
  const std::size_t inputs = blocks_of(shape_, Buffer::input);
  const std::size_t outputs = blocks_of(shape_, Buffer::output);
  Buffers& b = buffers_[rank];
  b.input = memory + shift;
  b.output = memory + padded(inputs * block_bytes_ + shift);
  b.scratch = b.output + padded(outputs * block_bytes_);
  std::fill(memory, memory + bytes_needed(shape_, what_), kUntouched);
  if (!what_.in_place) return;
  for (int chunk = 0; chunk < static_cast<int>(inputs) * shape_.chunks; ++chunk) {
    const int alias = collectives::contract_alias(shape_, static_cast<Rank>(rank), chunk);
    if (alias < 0) continue;
    const std::size_t in = idx(chunk / shape_.chunks);
    const std::size_t out = idx(alias / shape_.chunks);
    b.input = memory + shift + (out > in ? out - in : 0) * block_bytes_;
    b.output = b.input + in * block_bytes_ - out * block_bytes_;
    return;
  }
}

void Trial::tell_call(std::size_t rank, const std::byte* arena) {
  const Buffers& b = buffers_[rank];
  DeviceCall& call = job_.calls[rank];
  call.count = what_.count;
  call.memory[0] = b.input;
  call.memory[1] = b.output;
  call.memory[2] = b.scratch;
  call.signature = mixed(what_.count * 64 + static_cast<std::uint64_t>(what_.type) * 8 +
                         static_cast<std::uint64_t>(what_.op));
  call.element_bytes = static_cast<std::uint32_t>(size_of(what_.type));
  call.op = what_.op;
  call.channels = what_.channels;
  call.timeout_ns = 60'000'000'000;
  call.protocol = what_.travels == Travels::flagged ? Protocol::low_latency : Protocol::simple;
  call.direct = what_.travels == Travels::direct || what_.travels == Travels::mixed;
  if (!call.direct) return;
  for (std::size_t buffer = 0; buffer < kBufferCount; ++buffer)
    if (what_.travels == Travels::direct ||
        mixed(what_.seed * 64 + rank * kBufferCount + buffer) % 2 == 0)
      call.shared[buffer] = HostWorld::reference(arena, call.memory[buffer]);
}

void Trial::fill(std::size_t rank) {
  const std::size_t element = size_of(what_.type);
  const std::size_t count = blocks_of(shape_, Buffer::input) * what_.count;
  std::byte* const input = buffers_[rank].input;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mixed((what_.seed << 40) + (rank << 32) + i);
    if (is_floating(what_.type) && job_.reduces)
      put_float(input + i * element, what_.type, rank, i, what_.op);
    else
      std::memcpy(input + i * element, &bits, element);
  }
  inputs_[rank].assign(input, input + count * element);
}

// What the block must hold, of all chunks of a block alike.
std::vector<std::byte> Trial::expected(std::size_t rank, int block, bool& anything) const {
  using Rule = collectives::Requirement::Rule;
  const auto required =
      collectives::required_output(shape_, static_cast<Rank>(rank), block * shape_.chunks);
  anything = required.rule == Rule::anything;
  if (anything) return {};
  std::vector<const std::byte*> sources;
  for (const collectives::Atom& atom : required.atoms)
    sources.push_back(inputs_[idx(atom.rank)].data() +
                      idx(atom.chunk / shape_.chunks) * block_bytes_);
  std::vector<std::byte> result(block_bytes_);
  if (!job_.reduces || what_.count == 0) {
    if (!sources.empty()) std::copy_n(sources[0], block_bytes_, result.data());
    return result;
  }
  std::byte* const destinations[] = {result.data()};
  const bool divides = what_.op == ReduceOp::avg && required.finished;
  kernels::reduce(
      {what_.type, what_.op, sources, destinations, what_.count, divides ? shape_.ranks : 1});
  return result;
}

std::string Trial::judge_block(std::size_t rank, int block) const {
  bool anything = false;
  const std::vector<std::byte> wanted = expected(rank, block, anything);
  const std::byte* const got = buffers_[rank].output + idx(block) * block_bytes_;
  if (anything || std::equal(wanted.begin(), wanted.end(), got)) return {};
  const auto wrong = std::mismatch(wanted.begin(), wanted.end(), got);
  return fmt::format("{}: rank {} block {} element {}", what_.text(), rank, block,
                     idx(static_cast<int>(wrong.first - wanted.begin())) / size_of(what_.type));
}

std::string Trial::judge() const {
  const std::size_t outputs = blocks_of(shape_, Buffer::output);
  for (std::size_t rank = 0; rank < buffers_.size(); ++rank) {
    for (int block = 0; block < static_cast<int>(outputs); ++block)
      if (std::string wrong = judge_block(rank, block); !wrong.empty()) return wrong;
    if (what_.in_place) continue;
    const Buffers& b = buffers_[rank];
    if (!std::equal(inputs_[rank].begin(), inputs_[rank].end(), b.input))
      return fmt::format("{}: rank {}: wrote its input", what_.text(), rank);
    for (std::size_t i = 0; i < kGuardBytes / 2; ++i)
      if (b.output[outputs * block_bytes_ + i] != kUntouched ||
          b.input[inputs_[rank].size() + i] != kUntouched)
        return fmt::format("{}: rank {}: wrote beyond a buffer", what_.text(), rank);
  }
  return {};
}

}  // namespace tutti::runtime::gpu
