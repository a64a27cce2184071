// options.hpp: the command line of the perf tools: nccl-tests' flags, those that mean something
// without a GPU, and three of our own (--explain, --floor, --buffers).
//
// Flags of nccl-tests that need a GPU are known and refused with what to do instead, so that a
// command line that people have either works as they expect or says why not.
// Knows nothing of communicators; who needs the world's size checks the root itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "perf/common/operation.hpp"
#include "tutti/status.hpp"
#include "tutti/types.hpp"

namespace tutti::perf {

inline constexpr int kEveryRoot = -1;

// What a rank waits for between operations (-z).
enum class Blocking {
  none,                   // the -m operations of an iteration are in flight together
  every_operation,        // each is waited for, and followed by a barrier
  every_operation_alone,  // each is waited for
  every_iteration         // a barrier after each iteration, which is not timed
};

// How the ranks' times become one (-a).
enum class Average { rank_zero, mean, minimum, maximum };

enum class BufferKind { shared, plain };

struct Options {
  int threads = 1;
  std::size_t min_bytes = std::size_t{32} << 20;
  std::size_t max_bytes = std::size_t{32} << 20;
  std::size_t step_bytes = std::size_t{1} << 20;
  std::size_t step_factor = 1;  // above 1 it is used, and step_bytes is not
  int iterations = 20;
  int aggregated = 1;
  int warmup = 1;
  int cycles = 1;  // 0: forever
  int checks = 1;  // checked calls per line; 0: #wrong is N/A
  std::vector<Operation> ops = {ReduceOp::sum};
  std::vector<DataType> types = {DataType::float32};
  int root = 0;  // or kEveryRoot
  Blocking blocking = Blocking::none;
  Average average = Average::mean;
  bool cpu_time = false;
  std::string json_path;  // empty: none
  bool timestamps = false;
  bool memory = false;
  int unalign = 0;  // elements
  bool per_iteration = false;
  int skip_iterations = 0;
  std::chrono::seconds timeout{0};  // 0: the library's own
  bool explain = false;
  bool floor = false;  // columns on the lower bound
  BufferKind buffers = BufferKind::shared;
  double min_bandwidth = 0;  // GB/s of average busbw; 0: any. From NCCL_TESTS_MIN_BW.
};

// Either options to run with, or a text to print and be done (--help).
struct Request {
  Options options;
  std::string text;
};

// Reads the arguments (without the program's name).
// Errors: invalid_argument; unsupported where a GPU or a type that Tutti has not is asked for.
Result<Request> parse_options(const std::string& program, std::vector<std::string> arguments);

// Adds what the environment says (NCCL_TESTS_*). `get` is std::getenv or a test's.
Status apply_environment(const char* (*get)(const char*), Options& options);

// "8", "64M", "1.5G": binary suffixes K, M, G. Errors: invalid_argument.
Result<std::size_t> parse_bytes(const std::string& text);

// The sizes from `min_bytes` to `max_bytes`, as the table will list them.
std::vector<std::size_t> sizes_of(const Options& options);

}  // namespace tutti::perf
