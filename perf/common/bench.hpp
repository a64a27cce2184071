// bench.hpp: measures and checks one line of the table on one rank. All ranks of a communicator do
// the same, each with its own Bench.
//
// How a time comes about: one untimed call, a barrier, then the iterations one after the other,
// each on another part of the buffers as long as these are larger than the message, so that caches
// are not warmer than in a program. A rank's time is its own; -a makes one of all ranks' times.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "perf/common/buffer.hpp"
#include "perf/common/options.hpp"
#include "perf/common/table.hpp"
#include "perf/common/tool.hpp"

namespace tutti::perf {

// What a line of the table is about.
struct Line {
  std::size_t bytes = 0;  // asked for; blocks of 16 bytes may make it less
  DataType type = DataType::float32;
  Operation op;
  Rank root = 0;
};

class Bench {
 public:
  // The tool, the options and the communicator must outlive it.
  static Result<Bench> make(Communicator& communicator, const Tool& tool, const Options& options);

  // Untimed calls of sizes from -b to -e, doubling, so that connections and plans exist.
  Status warm_up(const Line& line);

  // Both halves, timed and checked. The same on all ranks, but for details of what was wrong, which
  // the rank that saw it writes to stderr.
  // Errors: those of the calls, with rank, call and size.
  Result<Row> measure(const Line& line);

  std::size_t buffer_bytes() const { return input_.size() + output_.size(); }

 private:
  Bench(Communicator& communicator, const Tool& tool, const Options& options, Buffer input,
        Buffer output);

  struct Times {
    double mean_s = 0;
    std::vector<double> iterations_s;  // with -I
  };

  // Where a call's buffers are when they are shifted by whole messages.
  Call place(const Line& line, bool in_place, std::size_t shift) const;
  Call rotate(const Line& line, bool in_place, int operation) const;
  Pattern next_pattern(const Line& line);
  Shape shape_of(const Line& line) const;
  std::size_t message_bytes(const Line& line) const;

  Result<Half> measure_half(const Line& line, bool in_place);
  Result<Times> time_iterations(const Line& line, bool in_place);
  void restore_output(const Line& line);
  Status run_iteration(const Line& line, bool in_place, int iteration);
  Result<double> floor_us(const Line& line) const;
  Status gather_times(const Times& own, Half& half);
  Result<std::int64_t> check(const Line& line, bool in_place);
  std::int64_t count_wrong(const Line& line, const Pattern& pattern, const Call& call) const;

  // A failed call's status with rank, call and size before it.
  Status explained(const Status& status, const Line& line) const;
  std::string describe(const Line& line) const;

  Communicator* communicator_;
  const Tool* tool_;
  const Options* options_;
  Buffer input_, output_;
  std::uint64_t patterns_made_ = 0;  // the same on all ranks: it is the seed
};

}  // namespace tutti::perf
