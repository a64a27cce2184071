// A file that a user names as a topology, in NCCL's XML; it may come from anywhere.
//
// Beyond not crashing: what is accepted has all the properties of topology_checks.hpp; memory stays
// within a multiple of the text.
#include "fuzz.hpp"
#include "topology/nccl_import.hpp"
#include "topology_checks.hpp"

namespace tutti::fuzz {

std::size_t input_bytes_max() { return 2048; }

void run(std::string_view input) {
  Result<Topology> topology = Topology();
  {
    const AllocationLimit limit(topology_memory_max(input.size()));
    topology = topology::import_nccl(input);
  }
  if (topology.ok()) check_topology(*topology);
}

std::vector<std::string> seeds() {
  const std::string gpu =
      "<pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
      "link_width=\"16\"><gpu dev=\"0\" sm=\"90\" rank=\"0\"><nvlink target=\"0000:03:00.0\" "
      "count=\"4\" tclass=\"0x030200\"/><nvlink target=\"0000:f0:00.0\" count=\"18\" "
      "tclass=\"0x068000\"/><c2c bw=\"43125\" count=\"8\"/></gpu></pci>";
  std::string peer = gpu;
  peer.replace(peer.find("02:00"), 5, "03:00");
  peer.replace(peer.rfind("03:00"), 5, "02:00");
  const std::string nic =
      "<pci busid=\"0000:04:00.0\" class=\"0x020000\"><nic><net name=\"n\" dev=\"0\" "
      "speed=\"400000\" latency=\"1.5\"/></nic></pci>";
  return {
      "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
      "familyid=\"6\" modelid=\"143\">" +
          gpu + nic + "</cpu><cpu numaid=\"1\"><nic><net dev=\"0\"/></nic></cpu></system>",
      "<?xml version='1.0'?><!-- by hand --><system version='1'><cpu host_hash='0x1'><pci "
      "busid='a' "
      "class='0x060400'>" +
          gpu + peer + "<pcilink target='b'/></pci></cpu><cpu host_hash='0x2'/></system>"};
}

}  // namespace tutti::fuzz
