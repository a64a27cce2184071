// Link speeds from a made-up /sys.
#include "topology/sysfs.hpp"

#include <gtest/gtest.h>

#include "files.hpp"

namespace tutti::topology {
namespace {

using tutti::testing::TempDir;

TEST(Sysfs, PcieSpeeds) {
  EXPECT_DOUBLE_EQ(pcie_bandwidth("2.5 GT/s PCIe", "1").value(), 0.25);
  EXPECT_DOUBLE_EQ(pcie_bandwidth("5 GT/s", "4").value(), 2.0);
  EXPECT_NEAR(pcie_bandwidth("8.0 GT/s PCIe", "16").value(), 15.75, 0.01);
  EXPECT_NEAR(pcie_bandwidth("16.0 GT/s PCIe", "16").value(), 31.51, 0.01);
  EXPECT_NEAR(pcie_bandwidth("32.0 GT/s PCIe", "16").value(), 63.02, 0.01);
  EXPECT_NEAR(pcie_bandwidth("64.0 GT/s PCIe", "16").value(), 121.0, 0.01);
  for (const char* bad : {"", "Unknown", "7 GT/s", "-8 GT/s"})
    EXPECT_EQ(pcie_bandwidth(bad, "16"), std::nullopt) << bad;
  for (const char* bad : {"", "0", "-1", "255", "x16"})
    EXPECT_EQ(pcie_bandwidth("8.0 GT/s PCIe", bad), std::nullopt) << bad;
}

TEST(Sysfs, InfinibandRates) {
  EXPECT_DOUBLE_EQ(infiniband_bandwidth("100 Gb/sec (4X EDR)").value(), 12.5);
  EXPECT_DOUBLE_EQ(infiniband_bandwidth("2.5 Gb/sec (1X SDR)").value(), 0.3125);
  for (const char* bad : {"", "fast", "100", "100 Mb/sec", "-1 Gb/sec"})
    EXPECT_EQ(infiniband_bandwidth(bad), std::nullopt) << bad;
}

TEST(Sysfs, IdleLinksCountAsWhatBothEndsCanDo) {
  const TempDir root;
  const std::string devices = "sys/bus/pci/devices/";
  const auto device = [&](const std::string& address, const char* fastest, const char* width) {
    root.write(devices + address + "/max_link_speed", std::string(fastest) + "\n");
    root.write(devices + address + "/current_link_speed", "2.5 GT/s PCIe\n");
    root.write(devices + address + "/current_link_width", std::string(width) + "\n");
  };
  device("0000:00:01.0", "16.0 GT/s PCIe", "16");
  device("0000:01:00.0", "32.0 GT/s PCIe", "8");
  root.write(devices + "0000:02:00.0/current_link_speed", "8.0 GT/s PCIe\n");
  root.write(devices + "0000:02:00.0/current_link_width", "4\n");
  const Sysfs sysfs(root.path());
  EXPECT_NEAR(sysfs.pci_link_bandwidth("0000:01:00.0", "0000:00:01.0").value(), 15.75, 0.01);
  EXPECT_NEAR(sysfs.pci_link_bandwidth("0000:01:00.0", "").value(), 31.51, 0.01);
  EXPECT_NEAR(sysfs.pci_link_bandwidth("0000:02:00.0", "0000:09:00.0").value(), 3.94, 0.01);
  EXPECT_EQ(sysfs.pci_link_bandwidth("0000:09:00.0", ""), std::nullopt);
}

TEST(Sysfs, NetworkInterfaces) {
  const TempDir root;
  const auto interface = [&](const std::string& name, const char* type, const char* state,
                             const char* speed) {
    const std::string path = "sys/class/net/" + name + "/";
    root.write(path + "type", std::string(type) + "\n");
    root.write(path + "operstate", std::string(state) + "\n");
    if (speed != nullptr) root.write(path + "speed", std::string(speed) + "\n");
  };
  interface("eth1", "1", "up", "25000");
  interface("eth0", "1", "up", "-1");
  interface("down0", "1", "down", nullptr);
  interface("lo", "772", "unknown", nullptr);
  interface("br0", "1", "up", "10000");
  root.write("sys/class/net/br0/bridge/bridge_id", "1");
  interface("veth7", "1", "up", "10000");
  root.write("sys/class/net/veth7/master/ifindex", "4");
  interface("card0", "1", "down", "40000");
  root.write("sys/class/net/card0/device/vendor", "0x15b3");

  const auto found = Sysfs(root.path()).network_interfaces();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "card0");
  EXPECT_FALSE(found[0].up);
  EXPECT_EQ(found[1].name, "eth0");
  EXPECT_TRUE(found[1].up);
  EXPECT_EQ(found[1].bandwidth, std::nullopt);
  EXPECT_EQ(found[2].name, "eth1");
  EXPECT_DOUBLE_EQ(found[2].bandwidth.value(), 3.125);
}

TEST(Sysfs, FastestActivePort) {
  const TempDir root;
  const auto port = [&](const std::string& number, const char* state, const char* rate) {
    root.write("sys/class/infiniband/mlx5_0/ports/" + number + "/state", state);
    root.write("sys/class/infiniband/mlx5_0/ports/" + number + "/rate", rate);
  };
  port("1", "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n");
  port("2", "4: ACTIVE\n", "100 Gb/sec (4X EDR)\n");
  port("3", "1: DOWN\n", "400 Gb/sec (4X NDR)\n");
  const Sysfs sysfs(root.path());
  EXPECT_DOUBLE_EQ(sysfs.infiniband_bandwidth_of("mlx5_0").value(), 25);
  EXPECT_EQ(sysfs.infiniband_bandwidth_of("mlx5_1"), std::nullopt);
}

}  // namespace
}  // namespace tutti::topology
