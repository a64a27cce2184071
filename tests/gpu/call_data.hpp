// call_data.hpp: the memory of all ranks of a collective call, with data of which the results are
// known bit by bit: how it looks before, and whether it is afterwards what the contract says.
//
// Knows nothing of devices, or of how calls are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/schedule.hpp"
#include "tutti/types.hpp"

namespace tutti::runtime::gpu {

struct CallKind {
  ScheduleShape shape;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  bool in_place = false;
  std::uint64_t seed = 0;  // of data, and of where buffers lie
  bool scaled = false;     // by a factor of each rank's own: of a sum
};

// The bits of the factor that a rank has, from the first byte on.
std::uint64_t factor_of(Rank rank, DataType type);

// A number that has little to do with the one before.
std::uint64_t mixed(std::uint64_t value);

class CallData {
 public:
  // Memory of a rank: input and output, guards behind them included.
  struct Seat {
    std::vector<std::byte> image;  // as it is before the call
    std::size_t input_at = 0;
    std::size_t output_at = 0;
  };

  CallData() = default;  // of no ranks
  explicit CallData(const CallKind& kind);

  // Of every rank: a multiple of 256.
  static std::size_t bytes(const CallKind& kind);

  // Other numbers in the same places.
  void refill(std::uint64_t seed);

  const Seat& seat(Rank rank) const { return seats_[static_cast<std::size_t>(rank)]; }
  std::size_t input_bytes() const;

  // Of the rank's memory after the call: what is wrong; empty when all is right.
  std::string judge(Rank rank, const std::byte* after) const;

 private:
  std::size_t blocks(Buffer buffer) const;
  std::size_t block_bytes() const { return kind_.count * size_of(kind_.type); }
  void lay_out(Rank rank);
  void fill(Rank rank);
  std::vector<std::byte> expected(Rank rank, std::size_t block, bool& anything) const;

  CallKind kind_;
  std::vector<Seat> seats_;
};

}  // namespace tutti::runtime::gpu
