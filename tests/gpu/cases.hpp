// cases.hpp: collective calls with data of which the results are known bit by bit: what each rank's
// buffers hold before, and what the contract says that they must hold afterwards.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/verifier.hpp"
#include "host_world.hpp"

namespace tutti::runtime::gpu {

// How the messages of a call travel.
enum class Travels { flagged, staged, direct, mixed };

struct CallCase {
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  bool in_place = false;
  Travels travels = Travels::staged;
  std::uint32_t channels = 1;
  std::uint64_t seed = 0;  // of data, and of which buffers can be addressed

  std::string text() const;
};

// One call of all ranks, and its memory.
class Trial {
 public:
  // Every rank's memory lies in its part of `arenas`, which is kept for the next trials.
  Trial(const ScheduleShape& shape, const std::vector<EncodedProgram>& programs,
        const CallCase& what, std::vector<std::vector<std::byte>>& arenas, std::size_t offset);

  // Of the arena of any rank.
  static std::size_t bytes_needed(const ScheduleShape& shape, const CallCase& what);

  const Job& job() const { return job_; }
  Job& job() { return job_; }
  void fill(std::size_t rank);
  // What is wrong; empty when all is right.
  std::string judge() const;

 private:
  struct Buffers {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::byte* scratch = nullptr;
  };
  void lay_out(std::size_t rank, std::byte* memory);
  void tell_call(std::size_t rank, const std::byte* arena);
  std::string judge_block(std::size_t rank, int block) const;
  std::vector<std::byte> expected(std::size_t rank, int block, bool& anything) const;

  ScheduleShape shape_;
  CallCase what_;
  std::size_t block_bytes_;
  Job job_;
  std::vector<Buffers> buffers_;
  std::vector<std::vector<std::byte>> inputs_;  // as they were
};

}  // namespace tutti::runtime::gpu
