// verifiable.cc: a libverifiable.so.0 for NVIDIA's nccl-tests, built with DSO=1, which find in it
// what fills their buffers and judges their results. Theirs does so by kernels, which the stand-in
// for CUDA refuses; this one works in host memory and copies. The programs are as they are.
//
// All values are whole numbers so small that sums, products and partial results of any order are
// exact in each type: what is expected does not depend on how a library computes. An average of
// floats is rounded, and may be off by two units in the last place, as nccl-tests allow.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "nccl_tests/cuda_runtime.hpp"

namespace {

constexpr int kPreMulSum = ncclNumOps;  // how nccl-tests tell it; odd ranks' scalar is 2, others' 1
constexpr int kHostToDevice = 1;
constexpr int kDeviceToHost = 2;

struct Type {
  std::size_t bytes;
  int digits;         // whole numbers of so many bits are exact
  int exponent_bits;  // 0: not a float
  bool has_sign;
};

// In the order of ncclDataType_t.
constexpr Type kTypes[] = {{1, 6, 0, true},   {1, 7, 0, false}, {4, 30, 0, true},
                           {4, 31, 0, false}, {8, 40, 0, true}, {8, 40, 0, false},
                           {2, 11, 5, true},  {4, 24, 8, true}, {8, 53, 11, true},
                           {2, 8, 8, true},   {1, 4, 4, true},  {1, 3, 5, true}};

// What is reduced to an element: by whom, and where it lies.
struct Element {
  int op;
  int ranks;
  std::uint64_t seed;
  std::uint64_t index;
};

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 29)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

std::int64_t between(std::int64_t least, std::int64_t most, std::uint64_t random) {
  return least + static_cast<std::int64_t>(random % static_cast<std::uint64_t>(most - least + 1));
}

// Half of what is exact, so that scalars of 2 have room; all 40 bits of it would not be seen.
std::int64_t limit_of(const Type& type) {
  return std::int64_t{1} << (std::min(type.digits, 40) - 1);
}

std::int64_t factor(const Type& type, std::int64_t turn, std::uint64_t random) {
  if (turn > 1) return 1;
  const std::int64_t size = between(1, turn == 0 ? 3 : 2, random);
  return type.has_sign && (random >> 40) % 2 == 1 ? -size : size;
}

// Where there are more ranks than a sum can have terms, some of them, another few for each element,
// have terms, and the others zeros.
std::int64_t term(const Type& type, std::int64_t turn, int ranks, std::uint64_t random) {
  const std::int64_t terms = std::min<std::int64_t>(ranks, limit_of(type));
  const std::int64_t most = limit_of(type) / terms;
  return turn >= terms ? 0 : between(type.has_sign ? -most : 0, most, random);
}

std::int64_t input(const Type& type, const Element& of, int rank) {
  const std::uint64_t place = mix(of.index + mix(of.seed + 1));
  const std::uint64_t random = mix(place + static_cast<std::uint64_t>(rank));
  const auto turn = static_cast<std::int64_t>((place + static_cast<std::uint64_t>(rank)) %
                                              static_cast<std::uint64_t>(of.ranks));
  switch (of.op) {
    case ncclProd:
      return factor(type, turn, random);
    case ncclMin:
    case ncclMax:
      return between(type.has_sign ? -limit_of(type) : 0, limit_of(type), random);
    default:
      return term(type, turn, of.ranks, random);
  }
}

std::int64_t join(int op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMin:
      return std::min(a, b);
    case ncclMax:
      return std::max(a, b);
    default:
      return a + b;
  }
}

double expected(const Type& type, const Element& of) {
  std::int64_t all = 0;
  for (int rank = 0; rank < of.ranks; ++rank) {
    const std::int64_t scalar = of.op == kPreMulSum && rank % 2 == 1 ? 2 : 1;
    const std::int64_t own = scalar * input(type, of, rank);
    all = rank == 0 ? own : join(of.op, all, own);
  }
  if (of.op != ncclAvg) return static_cast<double>(all);
  return type.exponent_bits == 0 ? static_cast<double>(all / of.ranks)
                                 : static_cast<double>(all) / of.ranks;
}

// The bits of a value, rounded to nearest even. Requires: zero, or a normal number of the type.
std::uint64_t encode(const Type& type, double value) {
  if (type.exponent_bits == 0) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // from 1/2 to 1
  const auto digits = static_cast<std::int64_t>(std::nearbyint(std::ldexp(fraction, type.digits)));
  const int bias = (1 << (type.exponent_bits - 1)) - 1;
  const std::int64_t hidden = std::int64_t{1} << (type.digits - 1);
  const std::int64_t bits = (exponent - 1 + bias) * hidden + (digits - hidden);
  const std::uint64_t sign = value < 0 ? 1 : 0;
  return static_cast<std::uint64_t>(bits) | sign << (8 * type.bytes - 1);
}

std::uint64_t element(const std::vector<char>& data, const Type& type, std::size_t i) {
  std::uint64_t bits = 0;  // the low bytes first, as on every machine with CUDA
  std::memcpy(&bits, data.data() + i * type.bytes, type.bytes);
  return bits;
}

template <typename ValueOf>
std::vector<char> elements(const Type& type, std::size_t count, const ValueOf& value_of) {
  std::vector<char> made(count * type.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = encode(type, value_of(i));
    std::memcpy(made.data() + i * type.bytes, &bits, type.bytes);
  }
  return made;
}

int copy(void* to, const void* from, std::size_t bytes, int kind, cudaStream_t stream) {
  const int code = cudaMemcpyAsync(to, from, bytes, kind, stream);
  return code != 0 ? code : cudaStreamSynchronize(stream);
}

std::int64_t count_wrong(const std::vector<char>& a, const std::vector<char>& b, const Type& type,
                         int op) {
  const std::uint64_t tolerance = type.exponent_bits != 0 && op == ncclAvg ? 2 : 0;
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < a.size() / type.bytes; ++i) {
    const std::uint64_t x = element(a, type, i);
    const std::uint64_t y = element(b, type, i);
    if (std::max(x, y) - std::min(x, y) > tolerance) ++wrong;
  }
  return wrong;
}

}  // namespace

// As verifiable.h of nccl-tests declares them; their result is a cudaError_t. These block, which
// callers cannot tell from a kernel that was quick.
#pragma GCC visibility push(default)

int ncclVerifiablePrepareInput(void* to, std::intptr_t count, int type, int op, int ranks, int rank,
                               std::uint64_t seed, std::intptr_t first, cudaStream_t stream) {
  const auto value_of = [&](std::size_t i) {
    const Element of{op, ranks, seed, static_cast<std::uint64_t>(first) + i};
    return static_cast<double>(input(kTypes[type], of, rank));
  };
  const auto data = elements(kTypes[type], static_cast<std::size_t>(count), value_of);
  return copy(to, data.data(), data.size(), kHostToDevice, stream);
}

int ncclVerifiablePrepareExpected(void* to, std::intptr_t count, int type, int op, int ranks,
                                  std::uint64_t seed, std::intptr_t first, cudaStream_t stream) {
  const auto value_of = [&](std::size_t i) {
    return expected(kTypes[type], {op, ranks, seed, static_cast<std::uint64_t>(first) + i});
  };
  const auto data = elements(kTypes[type], static_cast<std::size_t>(count), value_of);
  return copy(to, data.data(), data.size(), kHostToDevice, stream);
}

int ncclVerifiableVerify(const void* results, const void* wanted, std::intptr_t count, int type,
                         int op, int ranks, std::uint64_t seed, std::intptr_t first,
                         std::int64_t* wrong, cudaStream_t stream) {
  const Type& of = kTypes[type];
  std::vector<char> got(static_cast<std::size_t>(count) * of.bytes);
  std::vector<char> right(got.size());
  if (const int code = copy(got.data(), results, got.size(), kDeviceToHost, stream); code != 0)
    return code;
  if (wanted != nullptr) {
    const int code = copy(right.data(), wanted, right.size(), kDeviceToHost, stream);
    if (code != 0) return code;
  } else {
    right = elements(of, static_cast<std::size_t>(count), [&](std::size_t i) {
      return expected(of, {op, ranks, seed, static_cast<std::uint64_t>(first) + i});
    });
  }
  *wrong = count_wrong(got, right, of, op);
  return 0;
}

#pragma GCC visibility pop
