// The tree for people.
#include <gtest/gtest.h>

#include <string>

#include "files.hpp"
#include "little_machine.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

TEST(Describe, CoresAlikeShareALine) {
  EXPECT_EQ(
      describe(parse_synthetic_topology("1x4 memory=20").value()),
      "n0: 4 cores\n"
      "└─ numa0\n"
      "   └─ core0..core3 (4 cores): cpu 0-3\n"
      "\n"
      "links           count        GB/s  latency ns  source\n"
      "memory              4          20          50  given\n"
      "GB/s per direction (memory: both together); ~ and assumed: not known, a usual value\n");
}

TEST(Describe, NodesAlikeAreCounted) {
  const std::string tree = describe(parse_synthetic_topology("4x2 nvlink=450 nic=50").value());
  EXPECT_NE(tree.find("n0: 2 GPUs, 2 NICs\n"), std::string::npos) << tree;
  EXPECT_NE(tree.find("gpu1: PCIe ~63 GB/s, nvlink to nvswitch 450 GB/s\n"), std::string::npos);
  EXPECT_NE(tree.find("nic1: PCIe ~63 GB/s, network 50 GB/s\n"), std::string::npos);
  EXPECT_NE(tree.find("\nn1 .. n3: as n0\n"), std::string::npos);
  EXPECT_EQ(tree.find("\nn2"), std::string::npos);
  EXPECT_NE(tree.find("network: 8 links\n"), std::string::npos);
}

TEST(Describe, AMachine) {
  const testing::TempDir dir;
  const std::string xml = dir.write("little.xml", testing::kLittleMachineXml);
  const std::string tree = describe(discover_topology({.hwloc_xml = xml}).value());
  for (const char* line :
       {"n0: little, Linux, 2 packages, 4 cores, 2 GPUs, 1 NIC, 2 GiB memory\n",
        "├─ package0: Little Chip\n", "│  └─ numa0: 1 GiB\n", "├─ L3 cache: 16 MiB\n",
        "└─ core2..core3 (2 cores): cpu 2-3, L2 1 MiB\n",
        "gpu0: nvml0, 0000:01:00.0, PCIe 15.75 GB/s, nvlink to nvswitch0 450 GB/s\n",
        "nic0: ib0, mlx5_0, 0001:01:00.0, PCIe 31.51 GB/s\n",
        "pci-0001:03:00.0: nvme0n1, storage, PCIe 3.938 GB/s\n"})
    EXPECT_NE(tree.find(line), std::string::npos) << line << "is not in\n" << tree;
}

TEST(Describe, TheGreatestNumberOfAProcessorHasNoNext) {
  const Topology topology = topology_from_text(
                                "tutti-topology 1\nvertex node n -\n"
                                "vertex core c0 n pus=\"2147483647\"\n"
                                "vertex core c1 n pus=\"2147483647\"\nend 3 0\n")
                                .value();
  EXPECT_NE(describe(topology).find("cpu 2147483647,2147483647\n"), std::string::npos)
      << describe(topology);
}

}  // namespace
}  // namespace tutti
