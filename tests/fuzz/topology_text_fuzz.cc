// A file that a user names as a topology, in Tutti's own text; it may come from anywhere.
//
// Beyond not crashing: what is accepted has all the properties of topology_checks.hpp; memory stays
// within a multiple of the text.
#include "fuzz.hpp"
#include "topology_checks.hpp"

namespace tutti::fuzz {

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  Result<Topology> topology = Topology();
  {
    const AllocationLimit limit(topology_memory_max(input.size()));
    topology = topology_from_text(input);
  }
  if (topology.ok()) check_topology(*topology);
}

std::vector<std::string> seeds() {
  std::vector<std::string> made;
  for (const char* line : {"1", "2x2 nic=5", "1x2 nvlink=450", "1x2 pcie=20 nics=1"})
    made.push_back(to_text(parse_synthetic_topology(line).value()));
  made.push_back(
      "tutti-topology 1\n# by hand\n\nvertex node n0 - os=\"a \\\"b\\\" \\\\\"\n"
      "vertex package p n0 model=\"x\"\nvertex core c0 p pus=\"0,1\" l2_bytes=\"1048576\"\n"
      "vertex core c1 p pus=\"2147483647\"\nvertex core c2 p pus=\"2147483647\"\n"
      "link memory c0 c1 latency_ns=5e-3 bandwidth=1.5/2 source=measured\n"
      "link memory c1 c2 latency_ns=0 bandwidth=1e300 half_duplex source=given\nend 5 2\n");
  return made;
}

}  // namespace tutti::fuzz
