// numbers.hpp: what the ranks put in and what must come out. All are whole numbers so small that
// either type holds them and their sums exactly: there is one right answer, bit by bit, whatever
// the order of the sum. They tell the rank, the block, the place and the call apart, so that what
// went astray and the result of the call before are wrong.
//
// Writing the input and checking the output are the owner's use of its buffers between calls: they
// draw the data into the owner's cache, as a program that works on them would.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "perf/comparison/work.hpp"

namespace tutti::comparison {

// The numbers as elements of one type; Bits has their size. An element's value depends on a place
// modulo a small number only, so that a table can be copied from any place on.
template <class Bits>
class Table {
 public:
  using BitsOf = Bits (*)(std::size_t number);

  Table(int ranks, int largest_sum, BitsOf bits_of) : modulus_(modulus(ranks, largest_sum)) {
    for (std::size_t place = 0; place < modulus_ + kPeriod; ++place) {
      std::size_t sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += (place + of_rank(rank)) % modulus_;
      single_.push_back(bits_of(place % modulus_));
      sum_.push_back(bits_of(sum));
    }
  }

  void write(Bits* block, std::size_t count, std::size_t place) const {
    for (std::size_t at = 0; at < count; at += kPeriod)
      std::memcpy(block + at, single_.data() + start(place, at),
                  std::min(kPeriod, count - at) * sizeof(Bits));
  }

  // How many elements are not what they must be: one rank's, or all ranks' summed.
  std::size_t check(const Bits* block, std::size_t count, std::size_t place, bool summed) const {
    const Bits* table = summed ? sum_.data() : single_.data();
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < count; at += kPeriod) {
      const Bits* right = table + start(place, at);
      const std::size_t length = std::min(kPeriod, count - at);
      std::uint32_t differ = 0;
      for (std::size_t i = 0; i < length; ++i) differ += block[at + i] != right[i] ? 1U : 0U;
      wrong += differ;
    }
    return wrong;
  }

  static std::size_t of_rank(int rank) { return 3 * static_cast<std::size_t>(rank); }

 private:
  static constexpr std::size_t kPeriod = 256;

  // The steps from rank to rank, block to block and so on must not vanish in it.
  static std::size_t modulus(int ranks, int largest_sum) {
    std::size_t result = static_cast<std::size_t>(std::min(251, largest_sum / ranks + 1));
    while (result > 2 && std::gcd(result, std::size_t{3 * 7 * 11 * 13}) != 1) --result;
    return result;
  }
  std::size_t start(std::size_t place, std::size_t at) const {
    return (place + 13 * (at / kPeriod)) % modulus_;
  }

  std::size_t modulus_;
  std::vector<Bits> single_;
  std::vector<Bits> sum_;
};

class Numbers {
 public:
  explicit Numbers(int ranks)
      : ranks_(ranks),
        f32_(ranks, 1 << 24, of_f32),
        bf16_(ranks, 1 << 8, of_bf16),
        f16_(ranks, 1 << 11, of_f16) {}

  // What the owner puts in before a call. All but the root of a broadcast put in nothing.
  void write(const Work& work, int rank, void* input, std::uint64_t call) const {
    if (work.operation == Operation::broadcast && rank != 0) return;
    const std::size_t count = work.count(ranks_);
    for (std::size_t block = 0; block < work.input_blocks(ranks_); ++block)
      with_table(work.type, input, [&](const auto& table, auto* elements) {
        table.write(elements + block * count, count, place(rank, block, call));
      });
  }

  // How many elements of the output are wrong.
  std::size_t check(const Work& work, int rank, void* output, std::uint64_t call) const {
    const std::size_t count = work.count(ranks_);
    const std::size_t mine = static_cast<std::size_t>(rank);
    std::size_t wrong = 0;
    for (std::size_t block = 0; block < work.output_blocks(ranks_); ++block) {
      const bool many = work.output_blocks(ranks_) > 1;
      const int source = many ? static_cast<int>(block) : 0;
      const std::size_t sent = work.input_blocks(ranks_) > 1 ? mine : 0;
      with_table(work.type, output, [&](const auto& table, auto* elements) {
        wrong += table.check(elements + block * count, count, place(source, sent, call),
                             sums(work.operation));
      });
    }
    return wrong;
  }

 private:
  static std::size_t place(int rank, std::size_t block, std::uint64_t call) {
    return Table<std::uint32_t>::of_rank(rank) + 11 * block + 7 * static_cast<std::size_t>(call);
  }

  static std::uint32_t of_f32(std::size_t number) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(number));
  }
  static std::uint16_t of_bf16(std::size_t number) {
    return static_cast<std::uint16_t>(of_f32(number) >> 16);
  }
  // Its exponent has other bounds and its fraction ten bits; a normal number, or zero.
  static std::uint16_t of_f16(std::size_t number) {
    constexpr std::uint32_t kLessExponent = (127 - 15) << 10;
    return static_cast<std::uint16_t>(number == 0 ? 0 : (of_f32(number) >> 13) - kLessExponent);
  }

  template <class Use>
  void with_table(Type type, void* memory, Use use) const {
    if (type == Type::f32)
      use(f32_, static_cast<std::uint32_t*>(memory));
    else
      use(type == Type::bf16 ? bf16_ : f16_, static_cast<std::uint16_t*>(memory));
  }

  int ranks_;
  Table<std::uint32_t> f32_;
  Table<std::uint16_t> bf16_;
  Table<std::uint16_t> f16_;
};

}  // namespace tutti::comparison
