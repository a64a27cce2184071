// What a user writes for a topology on a command line or in a variable.
//
// Beyond not crashing: what is accepted has all the properties of topology_checks.hpp. Sizes are
// cut to two digits, so that each input is quick; the parser's own limits on them are unit-tested.
#include <algorithm>

#include "fuzz.hpp"
#include "topology_checks.hpp"

namespace tutti::fuzz {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// True when the line may ask for more than some hundred vertices: a count of three digits before
// the first key or behind "nics=".
bool is_large(std::string_view line) {
  const auto long_run = [](std::string_view text) {
    int run = 0;
    for (const char c : text) {
      run = is_digit(c) ? run + 1 : 0;
      if (run > 1) return true;
    }
    return false;
  };
  if (long_run(line.substr(0, std::min(line.find('='), line.size())))) return true;
  for (const std::string_view key : {"nics=", "numa="})
    for (std::size_t at = line.find(key); at != std::string_view::npos;
         at = line.find(key, at + 1)) {
      const std::string_view value = line.substr(at + key.size(), 8);
      if (long_run(value) || value.find('e') < value.find(' ')) return true;
    }
  return false;
}

}  // namespace

std::size_t input_bytes_max() { return 96; }

void run(std::string_view input) {
  if (is_large(input)) return;
  Result<Topology> topology = Topology();
  {
    const AllocationLimit limit(16 * 1024 * 1024);
    topology = parse_synthetic_topology(input);
  }
  if (topology.ok() && topology->vertices().size() < 64) check_topology(*topology);
}

std::vector<std::string> seeds() {
  return {"4",
          "2x4 nvlink=450 nic=50",
          "1x4 memory=20 memory_ns=5",
          "1x4 pcie=20 pcie_ns=1 nics=2 nic_ns=3",
          "3x2 numa=2 interconnect=1.5 interconnect_ns=1e2",
          "2x2 nvlink_ns=9 nvlink=0.1 nics=1"};
}

}  // namespace tutti::fuzz
