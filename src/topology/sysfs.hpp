// sysfs.hpp: what Linux tells in /sys about links: PCI Express speed and width, NIC speed, ports
// of RDMA devices. It only reads small files below a root, so tests hand it a made-up tree. Knows
// nothing of a topology.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::topology {

// GB/s per direction of "16.0 GT/s PCIe" and 16 lanes, after line coding.
std::optional<double> pcie_bandwidth(std::string_view speed, std::string_view width);

// GB/s of a rate such as "100 Gb/sec (4X EDR)".
std::optional<double> infiniband_bandwidth(std::string_view rate);

struct NetworkInterface {
  std::string name;
  bool up = false;
  std::optional<double> bandwidth;  // bytes per ns, where the driver tells
};

class Sysfs {
 public:
  // `root` holds sys/.
  explicit Sysfs(std::string root);

  // The link between a PCI function and the bridge above it ("" for none), where they tell. Idle
  // devices slow their links down, so this is the speed that both ends can reach at the width
  // that they agreed on.
  std::optional<double> pci_link_bandwidth(std::string_view address, std::string_view above) const;

  // The interface as /sys/class/net shows it, if it is there.
  std::optional<NetworkInterface> network_interface(const std::string& name) const;

  // The fastest active port of /sys/class/infiniband/NAME.
  std::optional<double> infiniband_bandwidth_of(const std::string& name) const;

  // Interfaces that could carry traffic to other hosts: not loopback, nor bridges and what is
  // plugged into them, nor virtual ones that are down. Sorted by name.
  std::vector<NetworkInterface> network_interfaces() const;

 private:
  std::optional<double> pci_fastest(std::string_view address, std::string_view width) const;

  // First line of a file below the root without trailing space; nullopt when unreadable.
  std::optional<std::string> read(const std::string& path) const;
  std::vector<std::string> list(const std::string& path) const;

  std::string root_;
};

}  // namespace tutti::topology
