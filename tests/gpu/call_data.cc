// What is expected is folded by the host's kernels, from numbers that every order folds alike.
#include "call_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/contract.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/special_reduction.hpp"
#include "tutti/numeric.hpp"

namespace tutti::runtime::gpu {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr auto kUntouched = std::byte{0x5a};

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Of nine ranks at most three have a 2, so that sums and products are numbers of every format,
// whatever the order.
float small_number(std::uint64_t at, Rank rank, ReduceOp op) {
  const bool is_two = (at + static_cast<std::uint64_t>(rank)) % 3 == 0 && rank < 9;
  const float sign = at % 2 == 0 ? 1.0f : -1.0f;
  if (is_two) return op == ReduceOp::min ? -2.0f : 2.0f * sign;
  return op == ReduceOp::prod ? 1.0f : op == ReduceOp::max ? -1.0f : 0.0f;
}

// One rank has a number, and all others have 0: it may be one whose product is rounded, and sums
// are still alike in every order.
float lone_number(std::uint64_t at, Rank rank, int ranks) {
  if (at % static_cast<std::uint64_t>(ranks) != static_cast<std::uint64_t>(rank)) return 0.0f;
  return static_cast<float>(static_cast<int>(mixed(at) % 1000) - 500) / 64;
}

void put_float(std::byte* to, DataType type, float value) {
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
  return idx(collectives::contract_chunks(shape, buffer) / shape.chunks);
}

// Room for so many blocks, of which the first one may begin an element later.
std::size_t padded(const CallKind& kind, std::size_t blocks) {
  return ((blocks * kind.count + 1) * size_of(kind.type) + kGuardBytes + 255) / 256 * 256;
}

}  // namespace

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15U;
  value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9U;
  return value ^ value >> 32;
}

// No two alike of any nine, and no floats whose products are exact.
std::uint64_t factor_of(Rank rank, DataType type) {
  std::uint64_t bits = 0;
  auto* const to = reinterpret_cast<std::byte*>(&bits);
  if (is_floating(type))
    put_float(to, type, static_cast<float>(rank % 9 + 3) / 7);
  else
    bits = static_cast<std::uint64_t>(rank % 9) * 37 + 3;
  return bits;
}

std::size_t CallData::bytes(const CallKind& kind) {
  return padded(kind, blocks_of(kind.shape, Buffer::input)) +
         padded(kind, blocks_of(kind.shape, Buffer::output));
}

CallData::CallData(const CallKind& kind) : kind_(kind), seats_(idx(kind.shape.ranks)) {
  for (Rank rank = 0; rank < kind.shape.ranks; ++rank) lay_out(rank);
  refill(kind.seed);
}

std::size_t CallData::blocks(Buffer buffer) const { return blocks_of(kind_.shape, buffer); }

std::size_t CallData::input_bytes() const { return blocks(Buffer::input) * block_bytes(); }

// Now and then at addresses that allow no vectors.
void CallData::lay_out(Rank rank) {
  Seat& seat = seats_[idx(rank)];
  seat.image.resize(bytes(kind_));
  const bool is_shifted = mixed(kind_.seed + static_cast<std::uint64_t>(rank)) % 3 == 0;
  seat.input_at = is_shifted ? size_of(kind_.type) : 0;
  seat.output_at = padded(kind_, blocks(Buffer::input));
  if (!kind_.in_place) return;
  for (std::size_t block = 0; block < blocks(Buffer::input); ++block) {
    const int chunk = static_cast<int>(block) * kind_.shape.chunks;
    const int alias = collectives::contract_alias(kind_.shape, rank, chunk);
    if (alias < 0) continue;
    const std::size_t same = idx(alias / kind_.shape.chunks);
    if (same > block) seat.input_at += (same - block) * block_bytes();
    seat.output_at = seat.input_at + block * block_bytes() - same * block_bytes();
    return;
  }
}

void CallData::refill(std::uint64_t seed) {
  kind_.seed = seed;
  for (Rank rank = 0; rank < kind_.shape.ranks; ++rank) fill(rank);
}

void CallData::fill(Rank rank) {
  Seat& seat = seats_[idx(rank)];
  std::fill(seat.image.begin(), seat.image.end(), kUntouched);
  const std::size_t element = size_of(kind_.type);
  const bool small = is_floating(kind_.type) && is_reduction(kind_.shape.collective);
  const std::uint64_t salt = mixed(kind_.seed) + (static_cast<std::uint64_t>(rank) << 40);
  std::byte* to = seat.image.data() + seat.input_at;
  for (std::size_t i = 0; i < blocks(Buffer::input) * kind_.count; ++i, to += element) {
    if (small) {
      const std::uint64_t at = i + kind_.seed;
      put_float(to, kind_.type,
                kind_.scaled ? lone_number(at, rank, kind_.shape.ranks)
                             : small_number(at, rank, kind_.op));
    } else {
      const std::uint64_t bits = mixed(salt + i);
      std::memcpy(to, &bits, element);
    }
  }
}

// What the block must hold, of all chunks of a block alike.
std::vector<std::byte> CallData::expected(Rank rank, std::size_t block, bool& anything) const {
  const int chunks = kind_.shape.chunks;
  const auto required =
      collectives::required_output(kind_.shape, rank, static_cast<int>(block) * chunks);
  anything = required.rule == collectives::Requirement::Rule::anything;
  if (anything) return {};
  std::vector<const std::byte*> sources;
  std::vector<std::vector<std::byte>> products;
  products.reserve(required.atoms.size());
  for (const collectives::Atom& atom : required.atoms) {
    const Seat& from = seat(atom.rank);
    sources.push_back(from.image.data() + from.input_at + idx(atom.chunk / chunks) * block_bytes());
    if (!kind_.scaled) continue;
    SpecialReduction premul;
    premul.type = kind_.type;
    const std::uint64_t factor = factor_of(atom.rank, kind_.type);
    std::memcpy(premul.scalar.data(), &factor, sizeof factor);
    scale(premul, sources.back(), products.emplace_back(block_bytes()).data(), kind_.count);
    sources.back() = products.back().data();
  }
  std::vector<std::byte> result(block_bytes());
  if (kind_.count == 0 || sources.empty()) return result;
  if (!is_reduction(kind_.shape.collective)) {
    std::copy_n(sources[0], block_bytes(), result.data());
    return result;
  }
  std::byte* const destinations[] = {result.data()};
  const bool divides = kind_.op == ReduceOp::avg && required.finished;
  kernels::reduce(
      {kind_.type, kind_.op, sources, destinations, kind_.count, divides ? kind_.shape.ranks : 1});
  return result;
}

// The output as it must be, and all around it as it was: guards, and the input when it is apart.
std::string CallData::judge(Rank rank, const std::byte* after) const {
  const Seat& mine = seat(rank);
  std::vector<std::byte> wanted = mine.image;
  for (std::size_t block = 0; block < blocks(Buffer::output); ++block) {
    bool anything = false;
    const std::vector<std::byte> content = expected(rank, block, anything);
    const std::size_t at = mine.output_at + block * block_bytes();
    std::copy_n(anything ? after + at : content.data(), block_bytes(), wanted.data() + at);
  }
  if (kind_.in_place) {  // what else there is of the input may be anything, too
    const std::size_t output_end = mine.output_at + blocks(Buffer::output) * block_bytes();
    for (std::size_t at = mine.input_at; at < mine.input_at + input_bytes(); ++at)
      if (at < mine.output_at || at >= output_end) wanted[at] = after[at];
  }
  const auto [want, got] = std::mismatch(wanted.begin(), wanted.end(), after);
  if (want == wanted.end()) return {};
  return fmt::format(
      "rank {} of {}: byte {} of its memory (input at {}, output at {}) is {:#x} and not {:#x}",
      rank, kind_.shape.ranks, want - wanted.begin(), mine.input_at, mine.output_at,
      static_cast<unsigned>(*got), static_cast<unsigned>(*want));
}

}  // namespace tutti::runtime::gpu
