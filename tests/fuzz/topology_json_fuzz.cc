// A file that a user names as a topology, in JSON; it may come from anywhere.
//
// Beyond not crashing: what is accepted has all the properties of topology_checks.hpp; memory stays
// within a multiple of the text.
#include <algorithm>

#include "fuzz.hpp"
#include "topology_checks.hpp"

namespace tutti::fuzz {

std::size_t input_bytes_max() { return 2048; }

void run(std::string_view input) {
  Result<Topology> topology = Topology();
  {
    const AllocationLimit limit(topology_memory_max(input.size()));
    topology = topology_from_json(input);
  }
  if (!topology.ok()) return;
  check_json(*topology);
  check_topology(*topology);
}

std::vector<std::string> seeds() {
  std::vector<std::string> made;
  for (const char* line : {"1", "1x2", "2x1 nic=5"})
    made.push_back(to_json(parse_synthetic_topology(line).value()));
  // Without spaces: more of the format in fewer bytes.
  made.push_back(
      R"({"format":"tutti-topology","version":1,"vertices":[{"kind":"node","name":"n","info":)"
      R"({"os":"\u0041"}},{"kind":"core","name":"c","parent":"n","info":{"pus":"1"}}],"links":[)"
      R"({"kind":"memory","a":"n","b":"c","latency_ns":1,"bandwidth_ab":2,"bandwidth_ba":2.5,)"
      R"("half_duplex":false,"source":"given"}]})");
  for (std::string& text : made) text.resize(std::min(text.size(), input_bytes_max()));
  return made;
}

}  // namespace tutti::fuzz
