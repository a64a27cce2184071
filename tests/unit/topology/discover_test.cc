// This machine, whatever it is, and link speeds from a made-up /sys over an invented one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "files.hpp"
#include "little_machine.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

using testing::TempDir;

const Link* network_link(const Topology& topology, const char* nic) {
  for (const LinkId id : topology.links_at(topology.find(nic).value()))
    if (topology.link(id).kind == LinkKind::network) return &topology.link(id);
  return nullptr;
}

TEST(Discover, ThisMachineHasCoresThatReachEachOther) {
  const Result<Topology> found = discover_topology();
  ASSERT_TRUE(found.ok()) << found.status().message();
  const auto cores = seats(*found, SeatKind::core);
  ASSERT_FALSE(cores.empty());
  EXPECT_FALSE(cpus_of(*found, VertexId{0}).empty());
  for (const VertexId core : cores) {
    EXPECT_EQ(found->node_of(core), found->find("n0").value());
    EXPECT_TRUE(find_path(*found, cores.front(), core).ok());
  }
}

TEST(Discover, ThisMachineReadsBackUnchanged) {
  const Topology found = discover_topology().value();
  EXPECT_EQ(topology_from_text(to_text(found)).value(), found);
  EXPECT_EQ(topology_from_json(to_json(found)).value(), found);
}

TEST(Discover, NamesTheNodeAsAsked) {
  const Topology found = discover_topology({.node_name = "host7"}).value();
  EXPECT_EQ(found.vertices().front().name, "host7");
  EXPECT_TRUE(found.find("host7/core0").has_value());
  EXPECT_FALSE(discover_topology({.node_name = "host 7"}).ok());
}

class DiscoverOverlay : public ::testing::Test {
 protected:
  DiscoverOverlay() : xml_(root_.write("little.xml", testing::kLittleMachineXml)) {}

  void port(const char* state, const char* rate) {
    root_.write("sys/class/infiniband/mlx5_0/ports/1/state", state);
    root_.write("sys/class/infiniband/mlx5_0/ports/1/rate", rate);
  }

  void interface(const std::string& name, const char* state, const char* speed) {
    root_.write("sys/class/net/" + name + "/operstate", state);
    root_.write("sys/class/net/" + name + "/speed", speed);
  }

  Topology discover() {
    return discover_topology({.sysfs_root = root_.path(), .hwloc_xml = xml_}).value();
  }

  TempDir root_;
  std::string xml_;
};

TEST_F(DiscoverOverlay, PciSpeeds) {
  root_.write("sys/bus/pci/devices/0000:02:00.0/max_link_speed", "32.0 GT/s PCIe\n");
  root_.write("sys/bus/pci/devices/0000:02:00.0/current_link_width", "16\n");
  const Topology topology = discover();
  const VertexId gpu = topology.find("n0/gpu1").value();
  for (const LinkId id : topology.links_at(gpu)) {
    const Link& link = topology.link(id);
    if (link.kind != LinkKind::pcie) continue;
    EXPECT_NEAR(link.bandwidth_ab, 63.02, 0.01);
    EXPECT_EQ(link.source, LinkSource::reported);
  }
}

TEST_F(DiscoverOverlay, NicSpeedFromItsFabricPort) {
  port("4: ACTIVE\n", "400 Gb/sec (4X NDR)\n");
  const Topology topology = discover();
  const Link* link = network_link(topology, "n0/nic0");
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(link->bandwidth_ab, 50);
  EXPECT_EQ(link->source, LinkSource::reported);
}

TEST_F(DiscoverOverlay, NicSpeedFromItsInterface) {
  interface("ib0", "up\n", "100000\n");
  const Topology topology = discover();
  ASSERT_NE(network_link(topology, "n0/nic0"), nullptr);
  EXPECT_EQ(network_link(topology, "n0/nic0")->bandwidth_ab, 12.5);
  // It has a PCI function, so it does not come a second time.
  EXPECT_EQ(topology.of_kind(VertexKind::nic).size(), 1u);
}

TEST_F(DiscoverOverlay, LiveNicsWithoutSpeedAreAssumed) {
  interface("ib0", "up\n", "-1\n");
  const Topology topology = discover();
  ASSERT_NE(network_link(topology, "n0/nic0"), nullptr);
  EXPECT_EQ(network_link(topology, "n0/nic0")->source, LinkSource::assumed);
}

TEST_F(DiscoverOverlay, DeadNicsLeadNowhere) {
  interface("ib0", "down\n", "100000\n");
  port("1: DOWN\n", "400 Gb/sec (4X NDR)\n");
  const Topology topology = discover();
  EXPECT_EQ(network_link(topology, "n0/nic0"), nullptr);
  EXPECT_EQ(topology.find("network"), std::nullopt);
}

TEST_F(DiscoverOverlay, InterfacesWithoutPciFunction) {
  interface("eth9", "up\n", "25000\n");
  const Topology topology = discover();
  const VertexId nic = topology.find("n0/net-0").value();
  EXPECT_EQ(topology.vertex(nic).info.at("net"), "eth9");
  EXPECT_EQ(network_link(topology, "n0/net-0")->bandwidth_ab, 3.125);
  EXPECT_TRUE(find_path(topology, topology.find("n0/core3").value(), nic).ok());
}

TEST_F(DiscoverOverlay, AnInterfaceMayHaveAnyName) {
  interface("\xce\xb7\x01", "up\n", "25000\n");
  const Topology topology = discover();
  EXPECT_EQ(topology.vertex(topology.find("n0/net-0").value()).info.at("net"), "???");
}

TEST(Discover, SavedMachinesGetNoSysfsOfThisOne) {
  const TempDir dir;
  const std::string xml = dir.write("little.xml", testing::kLittleMachineXml);
  const Topology topology = discover_topology({.hwloc_xml = xml}).value();
  EXPECT_EQ(topology.find("network"), std::nullopt);
}

}  // namespace
}  // namespace tutti
