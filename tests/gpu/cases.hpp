// cases.hpp: collective calls as a HostWorld makes them: in any way of travelling, with the data of
// call_data.hpp in memory of the ranks, and scratch memory beside it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "call_data.hpp"
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
  bool scaled = false;     // by factors: of a sum

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
  void fill(std::size_t rank);  // the input, again
  // What is wrong; empty when all is right.
  std::string judge() const;

 private:
  void tell_call(std::size_t rank, const std::byte* arena, const ScheduleShape& shape);
  void scale(DeviceCall& call, Rank rank, const ScheduleShape& shape);

  CallCase what_;
  CallData data_;
  Job job_;
  std::vector<std::byte*> memory_;  // by rank
};

}  // namespace tutti::runtime::gpu
