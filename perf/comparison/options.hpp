// options.hpp: the command line of a contender's program, which perf/compare writes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/comparison/peer.hpp"

namespace tutti::comparison {

struct Options {
  std::string stage;   // the file that the ranks share
  std::string report;  // where rank 0 writes
  Memory memory = Memory::plain;
  std::vector<Operation> operations = {Operation::all_reduce};
  std::vector<Type> types = {Type::f32};
  std::vector<std::size_t> sizes;
  double seconds = 0.5;  // for the calls of one size
  std::size_t least_calls = 5;
  std::size_t most_calls = 5000;
};

// False: not a command line of this program; stderr says what is.
bool parse(int argc, char** argv, Options& options);

}  // namespace tutti::comparison
