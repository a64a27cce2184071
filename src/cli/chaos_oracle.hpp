// chaos_oracle.hpp: what a collective must give, told without schedules.
//
// Contributions are small whole numbers, so that every element type holds every partial result
// exactly and results can be compared bit for bit whatever the order of the operations.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tutti/types.hpp"

namespace tutti::cli {

struct ChaosCall {
  Collective collective = Collective::barrier;
  int ranks = 1;
  Rank root = 0;
  std::size_t count = 0;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  // Where blocks differ in size: of every rank; of an all_to_all from every rank to every other,
  // row by row. Then `count` is the largest.
  std::vector<std::size_t> counts;

  bool varied() const { return !counts.empty(); }
  // Elements of a block: of `rank`, or that `from` sends to it.
  std::size_t block(Rank rank, Rank from = 0) const;
};

std::size_t input_count(const ChaosCall& call, Rank rank);
std::size_t output_count(const ChaosCall& call, Rank rank);

// The blocks that a rank's buffers consist of, one after the other.
std::vector<std::size_t> input_blocks(const ChaosCall& call, Rank rank);
std::vector<std::size_t> output_blocks(const ChaosCall& call, Rank rank);

// Elements of the input of `rank`: from `begin` on, as many as `values` has.
void contribute(const ChaosCall& call, Rank rank, std::size_t begin, std::vector<double>& values);

// The whole input of a rank.
void write_input(const ChaosCall& call, Rank rank, std::byte* input);

// `count` elements of one value, rounded once to the type; and one, read.
void write_all(DataType type, std::byte* array, std::size_t count, double value);
double load(DataType type, const std::byte* array, std::size_t i);

// What the outputs of one call must be. Keeps what is the same for all ranks.
class ChaosOracle {
 public:
  explicit ChaosOracle(const ChaosCall& call) : call_(call) {}

  // The output of `rank`, as bytes; nothing where the collective leaves it alone. Until the next.
  const std::vector<std::byte>* expected(Rank rank);

 private:
  void add(Rank from, std::size_t begin, std::size_t count);
  void reduce(std::size_t begin, std::size_t count);

  ChaosCall call_;
  std::vector<double> reduced_;  // of a reduction: all elements, once they were asked for
  std::vector<double> values_;
  std::vector<std::byte> bytes_;
};

}  // namespace tutti::cli
