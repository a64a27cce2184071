// The oracle's arithmetic, in double: exact for every value that occurs here.
#include "cli/chaos_oracle.hpp"

#include <algorithm>
#include <cstring>

#include "tutti/numeric.hpp"

namespace tutti::cli {
namespace {

template <typename T>
void put(std::byte* array, std::size_t i, T value) {
  std::memcpy(array + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
T get(const std::byte* array, std::size_t i) {
  T value;
  std::memcpy(&value, array + i * sizeof(T), sizeof(T));
  return value;
}

// The average as the type computes it: integers truncate; floats below 64 bits divide in float.
double average(DataType type, double sum, int ranks) {
  if (!is_floating(type)) return static_cast<double>(static_cast<long long>(sum) / ranks);
  if (type == DataType::float64) return sum / ranks;
  return static_cast<double>(static_cast<float>(sum) / static_cast<float>(ranks));
}

bool is_8_bit_float(DataType type) { return is_floating(type) && size_of(type) == 1; }

bool is_sum(const ChaosCall& call) {
  return is_reduction(call.collective) && (call.op == ReduceOp::sum || call.op == ReduceOp::avg);
}

// Sums of up to 32 contributions stay at or below 8, up to which f8e5m2 holds every whole number.
double small_summand(const ChaosCall& call, Rank rank, std::size_t i, std::size_t mixed) {
  constexpr int kMost = 8;
  if (call.ranks <= kMost)
    return 1 + static_cast<double>(mixed % static_cast<std::size_t>(kMost / call.ranks));
  return static_cast<std::size_t>(rank) % 4 == i % 4 ? 1 : 0;
}

double folded(const ChaosCall& call, std::size_t i) {
  double value = contribution(call, 0, i);
  for (Rank q = 1; q < call.ranks; ++q) {
    const double other = contribution(call, q, i);
    switch (call.op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        value += other;
        break;
      case ReduceOp::prod:
        value *= other;
        break;
      case ReduceOp::min:
        value = std::min(value, other);
        break;
      case ReduceOp::max:
        value = std::max(value, other);
        break;
    }
  }
  return call.op == ReduceOp::avg ? average(call.type, value, call.ranks) : value;
}

}  // namespace

std::size_t input_count(const ChaosCall& call) {
  const bool many = call.collective == Collective::reduce_scatter ||
                    call.collective == Collective::all_to_all ||
                    call.collective == Collective::scatter;
  return many ? call.count * static_cast<std::size_t>(call.ranks) : call.count;
}

std::size_t output_count(const ChaosCall& call) {
  const bool many = call.collective == Collective::all_gather ||
                    call.collective == Collective::all_to_all ||
                    call.collective == Collective::gather;
  return many ? call.count * static_cast<std::size_t>(call.ranks) : call.count;
}

double contribution(const ChaosCall& call, Rank rank, std::size_t i) {
  const std::size_t mixed = i * 31 + static_cast<std::size_t>(rank) * 17 + i / 7;
  if (is_8_bit_float(call.type) && is_sum(call)) return small_summand(call, rank, i, mixed);
  if (size_of(call.type) == 1) {
    // Of bytes, products stay below 32 and sums of up to 32 contributions below 127.
    if (is_reduction(call.collective) && call.op == ReduceOp::prod)
      return static_cast<std::size_t>(rank) % 8 == i % 8 ? 1 + static_cast<double>(mixed % 2) : 1;
    return static_cast<double>(mixed % 3 + 1);
  }
  // Products stay powers of two that half precision holds: at most eight of the ranks give a 2.
  if (is_reduction(call.collective) && call.op == ReduceOp::prod)
    return static_cast<std::size_t>(rank) % 2 == i % 2 ? 1 + static_cast<double>(mixed % 2) : 1;
  // Sums of up to 32 contributions stay below 256, which bfloat16 holds exactly.
  return static_cast<double>(mixed % 7 + 1);
}

std::optional<double> expected(const ChaosCall& call, Rank rank, std::size_t i) {
  const auto r = static_cast<std::size_t>(rank);
  switch (call.collective) {
    case Collective::all_reduce:
      return folded(call, i);
    case Collective::reduce_scatter:
      return folded(call, r * call.count + i);
    case Collective::reduce:
      if (rank != call.root) return std::nullopt;
      return folded(call, i);
    case Collective::broadcast:
      return contribution(call, call.root, i);
    case Collective::gather:
      if (rank != call.root) return std::nullopt;
      return contribution(call, static_cast<Rank>(i / call.count), i % call.count);
    case Collective::scatter:
      return contribution(call, call.root, r * call.count + i);
    case Collective::all_gather:
      return contribution(call, static_cast<Rank>(i / call.count), i % call.count);
    case Collective::all_to_all:
      return contribution(call, static_cast<Rank>(i / call.count), r * call.count + i % call.count);
    case Collective::send_recv:
      return contribution(call, (rank - call.root + call.ranks) % call.ranks, i);
    case Collective::barrier:
      return std::nullopt;
  }
  return std::nullopt;
}

void store(DataType type, std::byte* array, std::size_t i, double value) {
  switch (type) {
    case DataType::float32:
      return put(array, i, static_cast<float>(value));
    case DataType::float64:
      return put(array, i, value);
    case DataType::int8:
      return put(array, i, static_cast<std::int8_t>(value));
    case DataType::uint8:
      return put(array, i, static_cast<std::uint8_t>(value));
    case DataType::int32:
      return put(array, i, static_cast<std::int32_t>(value));
    case DataType::uint32:
      return put(array, i, static_cast<std::uint32_t>(value));
    case DataType::uint64:
      return put(array, i, static_cast<std::uint64_t>(value));
    case DataType::int64:
      return put(array, i, static_cast<std::int64_t>(value));
    case DataType::bfloat16:
      return put(array, i, to_bfloat16(static_cast<float>(value)));
    case DataType::float16:
      return put(array, i, to_float16(static_cast<float>(value)));
    case DataType::float8_e4m3:
      return put(array, i, to_float8_e4m3(static_cast<float>(value)));
    case DataType::float8_e5m2:
      return put(array, i, to_float8_e5m2(static_cast<float>(value)));
  }
}

double load(DataType type, const std::byte* array, std::size_t i) {
  switch (type) {
    case DataType::float32:
      return static_cast<double>(get<float>(array, i));
    case DataType::float64:
      return get<double>(array, i);
    case DataType::int8:
      return get<std::int8_t>(array, i);
    case DataType::uint8:
      return get<std::uint8_t>(array, i);
    case DataType::int32:
      return get<std::int32_t>(array, i);
    case DataType::uint32:
      return get<std::uint32_t>(array, i);
    case DataType::uint64:
      return static_cast<double>(get<std::uint64_t>(array, i));
    case DataType::int64:
      return static_cast<double>(get<std::int64_t>(array, i));
    case DataType::bfloat16:
      return static_cast<double>(to_float(get<bfloat16>(array, i)));
    case DataType::float16:
      return static_cast<double>(to_float(get<float16>(array, i)));
    case DataType::float8_e4m3:
      return static_cast<double>(to_float(get<float8_e4m3>(array, i)));
    case DataType::float8_e5m2:
      return static_cast<double>(to_float(get<float8_e5m2>(array, i)));
  }
  return 0;
}

}  // namespace tutti::cli
