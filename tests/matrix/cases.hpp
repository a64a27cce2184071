// cases.hpp: the cases of the test matrix: every collective with every element type, operation,
// size and place of its buffers, made and checked on one rank. Data and expectations are those of
// the perf tools (perf/common/data.hpp), which are exact bit by bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/common/operation.hpp"
#include "tutti/communicator.hpp"

namespace tutti::matrix {

enum class Call : std::uint8_t {
  all_reduce,
  reduce_scatter,
  reduce,
  reduce_scatter_v,
  all_gather,
  broadcast,
  gather,
  scatter,
  all_to_all,
  send_recv,
  all_gather_v,
  all_to_all_v,
  barrier,
};

struct Case {
  Call call = Call::barrier;
  DataType type = DataType::float32;
  perf::Operation operation;
  bool custom = false;  // an operation of our own, in which the last rank wins
  std::size_t count = 0;
  bool in_place = false;
  int number = 0;  // picks roots and kinds of memory

  std::string text() const;
};

// All of them, in one order everywhere.
std::vector<Case> all_cases();

// A rank's buffers: two pairs, of memory that peers can map and of plain memory.
class Buffers {
 public:
  explicit Buffers(int ranks);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  std::byte* input(int number) { return memory_[number % 2 == 0 ? 0 : 2]; }
  std::byte* output(int number) { return memory_[number % 2 == 0 ? 1 : 3]; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::vector<std::byte> plain_;
  std::byte* memory_[4] = {};
};

// Makes the call and checks what this rank got; empty when all is right.
std::string run_case(Communicator& communicator, const Case& what, Buffers& buffers);

// Reduces numbers whose sums depend on order and rounding, and mixes the bits of the results into
// `digest`: the same for all worlds of so many ranks in the order of ranks, on every rank.
// Requires  a communicator with reduce_order=rank_tree.
std::string run_rough(Communicator& communicator, const Case& what, Buffers& buffers,
                      std::uint64_t& digest);

}  // namespace tutti::matrix
