// discover.cc: this machine as a topology: hwloc for what there is and how it nests, then sysfs
// for link speeds that hwloc does not see. A NIC with a known or likely speed is linked to the
// vertex "network", which stands for everything beyond the machine.

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/try.hpp"
#include "topology/defaults.hpp"
#include "topology/hwloc_import.hpp"
#include "topology/names.hpp"
#include "topology/sysfs.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

using topology::NetworkInterface;
using topology::Sysfs;

std::string info_of(const Vertex& vertex, const char* key) {
  const auto found = vertex.info.find(key);
  return found == vertex.info.end() ? std::string() : found->second;
}

class SysfsOverlay {
 public:
  SysfsOverlay(const Sysfs& sysfs, TopologyBuilder& builder) : sysfs_(sysfs), builder_(builder) {}

  void run() {
    set_pci_speeds();
    const std::size_t count = builder_.vertex_count();
    for (std::size_t i = 0; i < count; ++i) {
      const auto id = static_cast<VertexId>(i);
      if (builder_.vertex(id).kind == VertexKind::nic) connect_nic(id);
    }
    add_nics_off_pci();
  }

 private:
  // hwloc reads speeds from configuration space, which may need privileges; sysfs never does.
  void set_pci_speeds() {
    for (std::size_t i = 0; i < builder_.link_count(); ++i) {
      Link& link = builder_.link(static_cast<LinkId>(i));
      if (link.kind != LinkKind::pcie) continue;
      const std::string address = info_of(builder_.vertex(link.b), "pci");
      if (address.empty()) continue;
      const std::string above = info_of(builder_.vertex(link.a), "pci");
      if (const auto bandwidth = sysfs_.pci_link_bandwidth(address, above)) {
        link.bandwidth_ab = link.bandwidth_ba = *bandwidth;
        link.source = LinkSource::reported;
      }
    }
  }

  // One link for a NIC: its fastest port that tells, else a guess when a port is up.
  void connect_nic(VertexId nic) {
    std::optional<double> best;
    bool up = false;
    const std::string interfaces = info_of(builder_.vertex(nic), "net");
    for (const std::string_view name : base::split(interfaces, ',')) {
      seen_.emplace(name);
      const auto interface = sysfs_.network_interface(std::string(name));
      if (!interface) continue;
      up = up || interface->up;
      if (interface->up && interface->bandwidth)
        best = std::max(best.value_or(0), *interface->bandwidth);
    }
    const std::string fabrics = info_of(builder_.vertex(nic), "fabric");
    for (const std::string_view name : base::split(fabrics, ','))
      if (const auto rate = sysfs_.infiniband_bandwidth_of(std::string(name)))
        best = std::max(best.value_or(0), *rate);
    if (best || up) connect_to_network(nic, best);
  }

  // Virtual machines and containers have interfaces without a PCI function.
  void add_nics_off_pci() {
    const VertexId node{0};
    for (const NetworkInterface& interface : sysfs_.network_interfaces()) {
      if (!interface.up || seen_.count(interface.name) > 0) continue;
      const std::string name = fmt::format("{}/net-{}", builder_.vertex(node).name, off_pci_++);
      const VertexId nic = builder_.add_vertex(
          {VertexKind::nic,
           name,
           node,
           {{"net", topology::plain(interface.name.c_str())}, {"bus", "none"}}});
      builder_.connect(LinkKind::interconnect, home(), nic, topology::kDomainLatencyNs,
                       topology::kDomainBandwidth, LinkSource::assumed);
      connect_to_network(nic, interface.bandwidth);
    }
  }

  // Where traffic of an interface without a place starts: the first memory domain.
  VertexId home() {
    for (std::size_t i = 0; i < builder_.vertex_count(); ++i)
      if (builder_.vertex(static_cast<VertexId>(i)).kind == VertexKind::numa)
        return static_cast<VertexId>(i);
    return VertexId{0};
  }

  void connect_to_network(VertexId nic, std::optional<double> bandwidth) {
    if (network_ == VertexId::none)
      network_ = builder_.add_vertex({VertexKind::network_switch, "network", VertexId::none, {}});
    builder_.connect(LinkKind::network, nic, network_, topology::kNetworkLatencyNs,
                     bandwidth.value_or(topology::kNicBandwidth),
                     bandwidth ? LinkSource::reported : LinkSource::assumed);
  }

  const Sysfs& sysfs_;
  TopologyBuilder& builder_;
  std::set<std::string> seen_;
  VertexId network_ = VertexId::none;
  int off_pci_ = 0;
};

}  // namespace

Result<Topology> discover_topology(const DiscoveryOptions& options) {
  const std::string node_name = options.node_name.empty() ? "n0" : options.node_name;
  Result<TopologyBuilder> builder = topology::import_hwloc(node_name, options.hwloc_xml);
  TUTTI_TRY(builder);
  const bool foreign = !options.hwloc_xml.empty() && options.sysfs_root == "/";
  if (!foreign) SysfsOverlay(Sysfs(options.sysfs_root), builder.value()).run();
  return std::move(builder.value()).build();
}

}  // namespace tutti
