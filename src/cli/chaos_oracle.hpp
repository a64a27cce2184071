// chaos_oracle.hpp: what a collective must give, told element by element and without schedules.
//
// Contributions are small whole numbers, so that every element type holds every partial result
// exactly and results can be compared bit for bit whatever the order of the operations.
#pragma once

#include <cstddef>
#include <optional>

#include "tutti/types.hpp"

namespace tutti::cli {

struct ChaosCall {
  Collective collective = Collective::barrier;
  int ranks = 1;
  Rank root = 0;
  std::size_t count = 0;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
};

std::size_t input_count(const ChaosCall& call);
std::size_t output_count(const ChaosCall& call);

// Element `i` of the input of `rank`.
double contribution(const ChaosCall& call, Rank rank, std::size_t i);

// Element `i` of the output of `rank`; nothing where the collective leaves it alone.
std::optional<double> expected(const ChaosCall& call, Rank rank, std::size_t i);

// Element `i` of an array of `type`, written (rounded once) and read.
void store(DataType type, std::byte* array, std::size_t i, double value);
double load(DataType type, const std::byte* array, std::size_t i);

}  // namespace tutti::cli
