// What NCCL's description of a machine becomes.
#include "topology/nccl_import.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "files.hpp"
#include "nccl_machine.hpp"
#include "topology/nccl_speeds.hpp"

namespace tutti::topology {
namespace {

using ::testing::HasSubstr;

double bandwidth_between(const Topology& topology, const char* a, const char* b) {
  const auto from = topology.find(a);
  const auto to = topology.find(b);
  if (!from || !to) return -1;
  const auto path = find_path(topology, *from, *to);
  return path.ok() ? path->bandwidth : -2;
}

// The link from `a` to `b`; what is asked of one that is not there fails the test.
const Link& link_between(const Topology& topology, const char* a, const char* b) {
  static const Link none;
  const auto from = topology.find(a);
  const auto to = topology.find(b);
  if (from && to)
    for (const LinkId id : topology.links_at(*from)) {
      const Link& link = topology.link(id);
      if ((link.a == *from && link.b == *to) || (link.a == *to && link.b == *from)) return link;
    }
  ADD_FAILURE() << "nothing joins " << a << " and " << b;
  return none;
}

std::string machine_of(const std::string& inside) {
  return "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\">" + inside + "</cpu></system>";
}

std::string gpu_of(const std::string& bus_id, const std::string& links) {
  return "<pci busid=\"" + bus_id +
         "\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\" "
         "sm=\"70\">" +
         links + "</gpu></pci>";
}

TEST(NcclImport, FindsWhatThereIs) {
  const auto machine = import_nccl(testing::kNcclMachineXml);
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine->of_kind(VertexKind::node).size(), 1U);
  EXPECT_EQ(machine->of_kind(VertexKind::numa).size(), 2U);
  EXPECT_EQ(machine->of_kind(VertexKind::gpu).size(), 4U);
  EXPECT_EQ(machine->of_kind(VertexKind::gpu_switch).size(), 1U);  // all of them are one
  EXPECT_EQ(machine->of_kind(VertexKind::nic).size(), 2U);  // the one below both processors once
  EXPECT_EQ(machine->of_kind(VertexKind::pci_bridge).size(), 2U);
  const Vertex& gpu = machine->vertex(*machine->find("n0/gpu0"));
  EXPECT_EQ(gpu.info.at("pci"), "0000:0a:00.0");
  EXPECT_EQ(gpu.info.at("sm"), "90");
  EXPECT_EQ(machine->vertex(gpu.parent).name, "n0/pci-0000:01:00.0");
}

TEST(NcclImport, KnowsHowFastItIs) {
  const auto machine = import_nccl(testing::kNcclMachineXml);
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  for (const char* gpu : {"n0/gpu0", "n0/gpu1", "n0/gpu2", "n0/gpu3"})
    EXPECT_EQ(link_between(*machine, gpu, "n0/nvswitch").bandwidth_ab, 18 * 25) << gpu;
  EXPECT_EQ(bandwidth_between(*machine, "n0/gpu0", "n0/gpu3"), 450);
  EXPECT_NEAR(link_between(*machine, "n0/pci-0000:01:00.0", "n0/gpu1").bandwidth_ab, 63.015, 0.001);
  EXPECT_EQ(link_between(*machine, "n0/gpu1", "n0/pci-0000:01:00.0").source, LinkSource::reported);
  const Link& silent = link_between(*machine, "n0/numa1", "n0/pci-0000:81:00.0");
  EXPECT_EQ(silent.source, LinkSource::assumed);
  EXPECT_EQ(silent.bandwidth_ab, 15.75);
  EXPECT_EQ(link_between(*machine, "n0/numa1", "n0/gpu2").bandwidth_ab, 345);  // C2C
  EXPECT_EQ(link_between(*machine, "n0/numa0", "n0/numa1").bandwidth_ab, 22);
  const Link& fast = link_between(*machine, "n0/nic0", "network");
  EXPECT_EQ(fast.bandwidth_ab, 50);
  EXPECT_EQ(fast.latency_ns, 2500);
  const Link& slow = link_between(*machine, "n0/nic1", "network");
  EXPECT_EQ(slow.bandwidth_ab, 1.25);
  EXPECT_EQ(slow.source, LinkSource::assumed);
}

TEST(NcclImport, LinksBetweenGpusAreOneForBothSides) {
  const std::string a = "0000:01:00.0";
  const std::string b = "0000:02:00.0";
  const auto link = [](const std::string& to, int count) {
    return "<nvlink target=\"" + to + "\" count=\"" + std::to_string(count) +
           "\" tclass=\"0x030200\"/>";
  };
  const auto both = import_nccl(
      machine_of(gpu_of(a, link(b, 2) + link("0000:77:00.0", 1)) + gpu_of(b, link(a, 1))));
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(link_between(*both, "n0/gpu0", "n0/gpu1").bandwidth_ab, 50);
  EXPECT_EQ(link_between(*both, "n0/gpu0", "n0/gpu1").bandwidth_ba, 25);
  EXPECT_EQ(both->links().size(), 3U);  // two of PCI Express; where the third led there is nothing
  for (const bool first : {true, false}) {
    const auto one = import_nccl(
        machine_of(gpu_of(a, first ? link(b, 2) : "") + gpu_of(b, first ? "" : link(a, 2))));
    ASSERT_TRUE(one.ok());
    EXPECT_EQ(link_between(*one, "n0/gpu0", "n0/gpu1").bandwidth_ab, 50);
    EXPECT_EQ(link_between(*one, "n0/gpu0", "n0/gpu1").bandwidth_ba, 50);
  }
}

TEST(NcclImport, SwitchesMayBeJoined) {
  const auto machine = import_nccl(machine_of(
      "<pci busid=\"a\" class=\"0x060400\"><pcilink target=\"b\"/></pci>"
      "<pci busid=\"b\" class=\"0x060400\"><pcilink target=\"a\"/><pcilink target=\"c\"/></pci>"));
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(link_between(*machine, "n0/pci-a", "n0/pci-b").bandwidth_ab, kLocalBandwidth);
  EXPECT_EQ(machine->links().size(), 3U);
}

TEST(NcclImport, HostsAreToldByTheirHash) {
  const auto machines = import_nccl(
      "<system version=\"1\"><cpu numaid=\"0\" host_hash=\"0xb\"/><cpu numaid=\"0\" "
      "host_hash=\"0xa\"/><cpu numaid=\"1\" host_hash=\"0xb\"/></system>");
  ASSERT_TRUE(machines.ok()) << machines.status().message();
  EXPECT_EQ(machines->of_kind(VertexKind::node).size(), 2U);
  EXPECT_EQ(machines->node_of(*machines->find("n0/numa1")), *machines->find("n0"));
  EXPECT_EQ(machines->node_of(*machines->find("n1/numa0")), *machines->find("n1"));
}

TEST(NcclImport, TakesAmdsLinks) {
  const auto machine = import_nccl(
      "<system version=\"2\"><cpu numaid=\"0\"><pci busid=\"a\" class=\"0x120000\"><gpu dev=\"0\" "
      "sm=\"304\" gcn=\"gfx942\"><xgmi target=\"b\" count=\"1\" tclass=\"0x120000\"/></gpu></pci>"
      "<pci busid=\"b\" class=\"0x120000\"><gpu dev=\"1\" sm=\"304\" gcn=\"gfx942\"/></pci>"
      "</cpu></system>");
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(link_between(*machine, "n0/gpu0", "n0/gpu1").kind, LinkKind::xgmi);
  EXPECT_EQ(link_between(*machine, "n0/gpu0", "n0/gpu1").bandwidth_ab, 48);
}

TEST(NcclImport, SaysWhatIsWrong) {
  const std::pair<std::string, const char*> wrong[] = {
      {"<graphs version=\"1\"/>", "<graphs> is no <system>"},
      {"<system/>", "has version ''"},
      {"<system version=\"3\"/>", "has version '3'"},
      {"<system version=\"1\">\n</system>", "has no <cpu>"},
      {machine_of("\n<pci class=\"0x060400\"/>"), "line 2: <pci> has no busid"},
      {machine_of("<pci busid=\"a\"/><pci busid=\"A\"/>"), "of busid a is there twice"},
      {"<system version=\"1\"", "<system> does not end"},
  };
  for (const auto& [text, what] : wrong) {
    const auto machine = import_nccl(text);
    ASSERT_FALSE(machine.ok()) << text;
    EXPECT_EQ(machine.status().code(), StatusCode::corrupt_data) << text;
    EXPECT_THAT(machine.status().message(), HasSubstr(what)) << text;
  }
}

TEST(NcclImport, IsWhatFilesBecome) {
  const testing::TempDir dir;
  const auto loaded = load_topology(dir.write("machine.xml", testing::kNcclMachineXml));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(*loaded, *import_nccl(testing::kNcclMachineXml));
  EXPECT_EQ(*topology_from_text(to_text(*loaded)), *loaded);
}

TEST(NcclSpeeds, AreThoseOfTheHardware) {
  EXPECT_EQ(nvlink_bandwidth(60), 20);
  EXPECT_EQ(nvlink_bandwidth(80), 25);
  EXPECT_EQ(nvlink_bandwidth(86), 14);
  EXPECT_EQ(nvlink_bandwidth(90), 25);
  EXPECT_EQ(nvlink_bandwidth(103), 50);
  EXPECT_EQ(xgmi_bandwidth("gfx90a"), 36);
  EXPECT_EQ(xgmi_bandwidth("910"), 36);
  EXPECT_EQ(xgmi_bandwidth("gfx950"), 48);
  EXPECT_EQ(xgmi_bandwidth("906"), 24);
  EXPECT_EQ(cpu_bandwidth({"x86_64", "AuthenticAMD", 175, 1}), 16);
  EXPECT_EQ(cpu_bandwidth({"x86_64", "GenuineIntel", 6, 0x55}), 10);
  EXPECT_EQ(cpu_bandwidth({"x86_64", "GenuineIntel", 6, 0xcf}), 40);
  EXPECT_EQ(cpu_bandwidth({"arm64", "", 0, 0}), 6);
  EXPECT_EQ(cpu_bandwidth({"", "", 0, 0}), 30);
}

}  // namespace
}  // namespace tutti::topology
