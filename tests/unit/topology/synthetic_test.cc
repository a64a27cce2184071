// The one-liners: shapes, numbers, and what is said about wrong ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tutti/topology.hpp"

namespace tutti {
namespace {

Topology synthetic(const char* line) {
  const Result<Topology> parsed = parse_synthetic_topology(line);
  EXPECT_TRUE(parsed.ok()) << line << ": " << parsed.status().message();
  return parsed.ok() ? parsed.value() : Topology();
}

std::size_t count(const Topology& topology, VertexKind kind) {
  return topology.of_kind(kind).size();
}

// All links of the kind have this bandwidth and source; there are this many.
void expect_links(const Topology& topology, LinkKind kind, std::size_t how_many, double bandwidth,
                  LinkSource source) {
  std::size_t found = 0;
  for (const Link& link : topology.links()) {
    if (link.kind != kind) continue;
    ++found;
    EXPECT_EQ(link.bandwidth_ab, bandwidth);
    EXPECT_EQ(link.bandwidth_ba, bandwidth);
    EXPECT_EQ(link.source, source);
  }
  EXPECT_EQ(found, how_many) << to_string(kind);
}

TEST(Synthetic, GpuCluster) {
  const Topology topology = synthetic("4x8 nvlink=450 nic=50");
  EXPECT_EQ(count(topology, VertexKind::node), 4u);
  EXPECT_EQ(count(topology, VertexKind::gpu), 32u);
  EXPECT_EQ(count(topology, VertexKind::nic), 32u);
  EXPECT_EQ(count(topology, VertexKind::gpu_switch), 4u);
  EXPECT_EQ(count(topology, VertexKind::network_switch), 1u);
  EXPECT_EQ(count(topology, VertexKind::core), 0u);
  expect_links(topology, LinkKind::nvlink, 32, 450, LinkSource::given);
  expect_links(topology, LinkKind::network, 32, 50, LinkSource::given);
  expect_links(topology, LinkKind::pcie, 96, 63, LinkSource::assumed);
  EXPECT_EQ(topology.node_of(topology.find("n3/gpu7").value()), topology.find("n3").value());
}

TEST(Synthetic, CoresOnSharedMemory) {
  const Topology topology = synthetic("1x4 memory=20 memory_ns=60");
  EXPECT_EQ(count(topology, VertexKind::core), 4u);
  EXPECT_EQ(count(topology, VertexKind::nic), 0u);
  EXPECT_EQ(count(topology, VertexKind::gpu), 0u);
  expect_links(topology, LinkKind::memory, 4, 20, LinkSource::given);
  EXPECT_EQ(topology.link(LinkId{0}).latency_ns, 60);
  EXPECT_EQ(synthetic("4"), synthetic("1x4"));
  expect_links(synthetic("2"), LinkKind::memory, 2, 12, LinkSource::assumed);
}

TEST(Synthetic, SeveralNodesGetANetwork) {
  const Topology topology = synthetic("3x2");
  EXPECT_EQ(count(topology, VertexKind::nic), 3u);
  expect_links(topology, LinkKind::network, 3, 25, LinkSource::assumed);
}

TEST(Synthetic, NicsAreSharedEvenly) {
  const Topology topology = synthetic("2x8 nvlink=450 nic=50 nics=4");
  EXPECT_EQ(count(topology, VertexKind::nic), 8u);
  EXPECT_EQ(count(topology, VertexKind::pci_bridge), 8u);
  const auto slot_of = [&](const char* name) {
    return topology.vertex(topology.vertex(topology.find(name).value()).parent).name;
  };
  EXPECT_EQ(slot_of("n0/gpu0"), "n0/pcie0");
  EXPECT_EQ(slot_of("n0/gpu1"), "n0/pcie0");
  EXPECT_EQ(slot_of("n0/gpu7"), "n0/pcie3");
  EXPECT_EQ(slot_of("n0/nic3"), "n0/pcie3");
  EXPECT_EQ(count(synthetic("2x2 nvlink=450 nics=8"), VertexKind::nic), 16u);
}

TEST(Synthetic, SlotsAreAsWideAsTheirNic) {
  expect_links(synthetic("2x1 nvlink=900 nic=100"), LinkKind::pcie, 6, 100, LinkSource::assumed);
  expect_links(synthetic("2x1 nvlink=900 nic=100 pcie=63"), LinkKind::pcie, 6, 63,
               LinkSource::given);
}

TEST(Synthetic, MemoryDomains) {
  const Topology topology = synthetic("1x6 numa=3 interconnect=40");
  expect_links(topology, LinkKind::interconnect, 3, 40, LinkSource::given);
  EXPECT_EQ(topology.children_of(topology.find("n0/numa2").value()).size(), 2u);
}

TEST(Synthetic, ErrorsQuoteTheTokenAndSayWhatIsKnown) {
  struct Case {
    const char* line;
    const char* says;
  };
  const Case cases[] = {
      {"", "''"},
      {"4y8", "'4y8'"},
      {"0x8", "'0x8'"},
      {"4x", "'4x'"},
      {"-1x2", "'-1x2'"},
      {"65537x1", "'65537x1'"},
      {"60000x60000", "'60000x60000'"},
      {"no/such/file.txt", "file that exists"},
      {"2x8 nvlnk=3", "nvlink, nvlink_ns, pcie"},
      {"2x8 nvlnk=3", "'nvlnk=3'"},
      {"2x8 nvlink", "'nvlink'"},
      {"2x8 nvlink=", "'nvlink='"},
      {"2x8 nvlink=fast", "'nvlink=fast'"},
      {"2x8 nvlink=0", "'nvlink=0'"},
      {"2x8 nvlink=-5", "'nvlink=-5'"},
      {"2x8 nvlink=inf", "'nvlink=inf'"},
      {"2x8 nvlink=nan", "'nvlink=nan'"},
      {"2x8 nics=1.5", "'nics=1.5'"},
      {"2x8 nic=50 nic=60", "'nic' stands twice"},
      {"2x8 nvlink=450 memory=20", "memory="},
      {"2x8 nvlink_ns=4", "needs nvlink="},
      {"1x4 numa=5", "between 1 and 4"},
      {"1x4 numa=0", "between 1 and 4"},
      {"2x4 nics=0", "nics=0"},
      {"65536x2 nvlink=1 nics=100000", "too many"},
  };
  for (const Case& test : cases) {
    const Result<Topology> parsed = parse_synthetic_topology(test.line);
    ASSERT_FALSE(parsed.ok()) << test.line;
    EXPECT_EQ(parsed.status().code(), StatusCode::invalid_argument);
    EXPECT_NE(parsed.status().message().find(test.says), std::string::npos)
        << test.line << ": " << parsed.status().message();
  }
}

TEST(Synthetic, HelpNamesEveryKeyThatErrorsName) {
  const std::string help = synthetic_help();
  for (const char* key : {"nvlink", "pcie_ns", "nics", "memory", "interconnect_ns"})
    EXPECT_NE(help.find(key), std::string::npos) << key;
}

}  // namespace
}  // namespace tutti
