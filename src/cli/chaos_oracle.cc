// The oracle's arithmetic, in double: exact for every value that occurs here.
#include "cli/chaos_oracle.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "tutti/numeric.hpp"

namespace tutti::cli {
namespace {

constexpr int kSomeRanks = 32;  // up to here sums of all ranks' small numbers stay small

template <typename T>
struct Plain {
  using Type = T;
  static T encode(double value) { return static_cast<T>(value); }
  static double decode(T value) { return static_cast<double>(value); }
};

template <typename T, T (*kEncode)(float)>
struct Narrow {
  using Type = T;
  static T encode(double value) { return kEncode(static_cast<float>(value)); }
  static double decode(T value) { return static_cast<double>(to_float(value)); }
};

// Calls `work` with how elements of the type are written.
template <typename Work>
auto with_type(DataType type, const Work& work) {
  switch (type) {
    case DataType::float64:
      return work(Plain<double>());
    case DataType::int8:
      return work(Plain<std::int8_t>());
    case DataType::uint8:
      return work(Plain<std::uint8_t>());
    case DataType::int32:
      return work(Plain<std::int32_t>());
    case DataType::uint32:
      return work(Plain<std::uint32_t>());
    case DataType::int64:
      return work(Plain<std::int64_t>());
    case DataType::uint64:
      return work(Plain<std::uint64_t>());
    case DataType::bfloat16:
      return work(Narrow<bfloat16, to_bfloat16>());
    case DataType::float16:
      return work(Narrow<float16, to_float16>());
    case DataType::float8_e4m3:
      return work(Narrow<float8_e4m3, to_float8_e4m3>());
    case DataType::float8_e5m2:
      return work(Narrow<float8_e5m2, to_float8_e5m2>());
    case DataType::float32:
      break;
  }
  return work(Plain<float>());
}

void write(DataType type, const std::vector<double>& values, std::byte* array) {
  with_type(type, [&](auto code) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto element = code.encode(values[i]);
      std::memcpy(array + i * sizeof(element), &element, sizeof(element));
    }
  });
}

// The average as the type computes it: integers truncate; floats below 64 bits divide in float.
double average(DataType type, double sum, int ranks) {
  if (!is_floating(type)) return static_cast<double>(static_cast<long long>(sum) / ranks);
  if (type == DataType::float64) return sum / ranks;
  return static_cast<double>(static_cast<float>(sum) / static_cast<float>(ranks));
}

bool is_8_bit_float(DataType type) { return is_floating(type) && size_of(type) == 1; }

// Elements of which only one rank in `one_in` contributes more than `least`, all others `least`.
struct Sparse {
  std::size_t one_in;
  double least;
  double operator()(std::size_t rank, std::size_t i, std::size_t mixed) const {
    return rank % one_in == i % one_in ? least + static_cast<double>(least > 0 ? mixed % 2 : 1)
                                       : least;
  }
};

// Calls `work` with the function of (rank, element, mixed bits) that makes a contribution.
template <typename Work>
void with_contribution(const ChaosCall& call, const Work& work) {
  const auto ranks = static_cast<std::size_t>(call.ranks);
  const bool reduces = is_reduction(call.collective);
  const bool sums = reduces && (call.op == ReduceOp::sum || call.op == ReduceOp::avg);
  const bool multiplies = reduces && call.op == ReduceOp::prod;
  const bool narrow = size_of(call.type) <= 2;
  const auto up_to = [](std::size_t most) {
    return [most](std::size_t, std::size_t, std::size_t mixed) {
      return 1 + static_cast<double>(mixed % most);
    };
  };
  // Of many ranks eight contribute to a sum, and four to a product; bfloat16 counts to 256.
  if (call.ranks > kSomeRanks && multiplies) return work(Sparse{ranks / 4, 1});
  if (call.ranks > kSomeRanks && sums && narrow) return work(Sparse{ranks / 8, 0});
  // Sums stay at or below 8, up to which f8e5m2 holds every whole number.
  if (is_8_bit_float(call.type) && sums) {
    if (call.ranks <= 8) return work(up_to(8 / ranks));
    return work(Sparse{4, 0});
  }
  // Products are powers of two: of bytes, below 32; else that half precision holds.
  if (multiplies) return work(Sparse{size_of(call.type) == 1 ? 8U : call.ranks > 16 ? 4U : 2U, 1});
  // Sums of up to 32 bytes stay below 127, others below 256, which bfloat16 holds exactly.
  return work(up_to(size_of(call.type) == 1 ? 3 : 7));
}

template <typename Fold>
void fold(std::vector<double>& into, const std::vector<double>& from, const Fold& one) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = one(into[i], from[i]);
}

void fold(ReduceOp op, std::vector<double>& into, const std::vector<double>& from) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return fold(into, from, [](double a, double b) { return a + b; });
    case ReduceOp::prod:
      return fold(into, from, [](double a, double b) { return a * b; });
    case ReduceOp::min:
      return fold(into, from, [](double a, double b) { return std::min(a, b); });
    case ReduceOp::max:
      return fold(into, from, [](double a, double b) { return std::max(a, b); });
  }
}

}  // namespace

std::size_t ChaosCall::block(Rank rank, Rank from) const {
  if (!varied()) return count;
  const auto row = static_cast<std::size_t>(collective == Collective::all_to_all ? from : 0);
  return counts[row * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)];
}

std::vector<std::size_t> input_blocks(const ChaosCall& call, Rank rank) {
  const bool many = call.collective == Collective::reduce_scatter ||
                    call.collective == Collective::all_to_all ||
                    call.collective == Collective::scatter;
  if (!many) return {call.block(rank)};
  std::vector<std::size_t> blocks;
  for (Rank to = 0; to < call.ranks; ++to) blocks.push_back(call.block(to, rank));
  return blocks;
}

std::vector<std::size_t> output_blocks(const ChaosCall& call, Rank rank) {
  const bool many = call.collective == Collective::all_gather ||
                    call.collective == Collective::all_to_all ||
                    call.collective == Collective::gather;
  if (!many) return {call.block(rank)};
  const bool everyone = call.collective == Collective::all_to_all;
  std::vector<std::size_t> blocks;
  for (Rank from = 0; from < call.ranks; ++from)
    blocks.push_back(everyone ? call.block(rank, from) : call.block(from));
  return blocks;
}

std::size_t input_count(const ChaosCall& call, Rank rank) {
  const std::vector<std::size_t> blocks = input_blocks(call, rank);
  return std::accumulate(blocks.begin(), blocks.end(), std::size_t{0});
}

std::size_t output_count(const ChaosCall& call, Rank rank) {
  const std::vector<std::size_t> blocks = output_blocks(call, rank);
  return std::accumulate(blocks.begin(), blocks.end(), std::size_t{0});
}

void contribute(const ChaosCall& call, Rank rank, std::size_t begin, std::vector<double>& values) {
  const auto r = static_cast<std::size_t>(rank);
  with_contribution(call, [&](const auto& contribution) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      const std::size_t i = begin + k;
      values[k] = contribution(r, i, i * 31 + r * 17 + i / 7);
    }
  });
}

void write_input(const ChaosCall& call, Rank rank, std::byte* input) {
  std::vector<double> values(input_count(call, rank));
  contribute(call, rank, 0, values);
  write(call.type, values, input);
}

void write_all(DataType type, std::byte* array, std::size_t count, double value) {
  with_type(type, [&](auto code) {
    const auto element = code.encode(value);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(array + i * sizeof(element), &element, sizeof(element));
  });
}

double load(DataType type, const std::byte* array, std::size_t i) {
  return with_type(type, [&](auto code) {
    typename decltype(code)::Type element;
    std::memcpy(&element, array + i * sizeof(element), sizeof(element));
    return code.decode(element);
  });
}

// Elements of the input of one rank, to the end of the output.
void ChaosOracle::add(Rank from, std::size_t begin, std::size_t count) {
  values_.resize(count);
  contribute(call_, from, begin, values_);
  const std::size_t before = bytes_.size();
  bytes_.resize(before + count * size_of(call_.type));
  write(call_.type, values_, bytes_.data() + before);
}

void ChaosOracle::reduce(std::size_t begin, std::size_t count) {
  if (reduced_.empty()) {
    reduced_.resize(input_count(call_, 0));
    contribute(call_, 0, 0, reduced_);
    values_.resize(reduced_.size());
    for (Rank q = 1; q < call_.ranks; ++q) {
      contribute(call_, q, 0, values_);
      fold(call_.op, reduced_, values_);
    }
    if (call_.op == ReduceOp::avg)
      for (double& value : reduced_) value = average(call_.type, value, call_.ranks);
  }
  const auto first = reduced_.begin() + static_cast<std::ptrdiff_t>(begin);
  values_.assign(first, first + static_cast<std::ptrdiff_t>(count));
  bytes_.resize(count * size_of(call_.type));
  write(call_.type, values_, bytes_.data());
}

const std::vector<std::byte>* ChaosOracle::expected(Rank rank) {
  // Where the block of `rank` begins in the input of `from`.
  const auto begin = [&](Rank from) {
    const std::vector<std::size_t> blocks = input_blocks(call_, from);
    return std::accumulate(blocks.begin(), blocks.begin() + rank, std::size_t{0});
  };
  bytes_.clear();
  switch (call_.collective) {
    case Collective::all_reduce:
      reduce(0, call_.count);
      break;
    case Collective::reduce_scatter:
      reduce(begin(0), call_.block(rank));
      break;
    case Collective::reduce:
      if (rank != call_.root) return nullptr;
      reduce(0, call_.count);
      break;
    case Collective::broadcast:
      add(call_.root, 0, call_.count);
      break;
    case Collective::scatter:
      add(call_.root, begin(call_.root), call_.count);
      break;
    case Collective::gather:
      if (rank != call_.root) return nullptr;
      [[fallthrough]];
    case Collective::all_gather:
      for (Rank q = 0; q < call_.ranks; ++q) add(q, 0, call_.block(q));
      break;
    case Collective::all_to_all:
      for (Rank q = 0; q < call_.ranks; ++q) add(q, begin(q), call_.block(rank, q));
      break;
    case Collective::send_recv:
      add((rank - call_.root + call_.ranks) % call_.ranks, 0, call_.count);
      break;
    case Collective::barrier:
      return nullptr;
  }
  return &bytes_;
}

}  // namespace tutti::cli
