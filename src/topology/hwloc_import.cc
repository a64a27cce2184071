// hwloc_import.cc: the device side of an hwloc import (PCI Express, GPUs, NICs, links between
// GPUs) and its frame. Devices that collectives never touch are left out, and bridges with
// nothing of interest below them with them.

#include "topology/hwloc_import.hpp"

#include <fmt/core.h>
#include <hwloc.h>
#include <hwloc/distances.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/try.hpp"
#include "topology/defaults.hpp"
#include "topology/hwloc_domains.hpp"
#include "topology/names.hpp"

namespace tutti::topology {
namespace {

constexpr unsigned kVendorNvidia = 0x10de;

// hwloc gives this struct a name of its own in some versions only.
using PciAttributes = decltype(hwloc_obj_attr_u::pcidev);

struct HwlocDestroy {
  void operator()(hwloc_topology_t hwloc) const { hwloc_topology_destroy(hwloc); }
};
using Hwloc = std::unique_ptr<hwloc_topology, HwlocDestroy>;

Result<Hwloc> load(const std::string& xml_path) {
  const bool from_file = !xml_path.empty();
  const auto failed = [&](std::string_view what) {
    return from_file ? Status(StatusCode::corrupt_data,
                              fmt::format("hwloc cannot read '{}' ({}); it takes XML that hwloc "
                                          "1.x or 2.x has written",
                                          xml_path, what))
                     : Status(StatusCode::system_error,
                              fmt::format("hwloc cannot read this machine ({})", what));
  };
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return failed("init");
  Hwloc hwloc(raw);
  if (from_file && hwloc_topology_set_xml(raw, xml_path.c_str()) != 0) return failed("open");
  // Display servers and OpenCL drivers have nothing to say that is worth starting them for, and
  // libpciaccess (which leaks) nothing that sysfs does not.
  for (const char* component : {"gl", "opencl", "pci"})
    static_cast<void>(
        hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component));
  if (hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL) != 0)
    return failed("filter");
  if (hwloc_topology_load(raw) != 0) return failed("load");
  return hwloc;
}

// What the operating system calls a PCI function, by what it is good for.
struct OsNames {
  std::string network;
  std::string fabric;  // RDMA and the like
  std::string gpu;
  std::string block;
};

void append(std::string& list, const char* name) {
  if (name == nullptr) return;
  list += (list.empty() ? "" : ",") + plain(name);
}

OsNames os_names_of(hwloc_obj_t pci) {
  OsNames names;
  for (hwloc_obj_t child = pci->io_first_child; child != nullptr; child = child->next_sibling) {
    if (child->type != HWLOC_OBJ_OS_DEVICE) continue;
    switch (child->attr->osdev.type) {
      case HWLOC_OBJ_OSDEV_NETWORK:
        append(names.network, child->name);
        break;
      case HWLOC_OBJ_OSDEV_OPENFABRICS:
        append(names.fabric, child->name);
        break;
      case HWLOC_OBJ_OSDEV_COPROC:
        append(names.gpu, child->name);
        break;
      case HWLOC_OBJ_OSDEV_BLOCK:
        append(names.block, child->name);
        break;
      case HWLOC_OBJ_OSDEV_GPU:
        // "card0" is any screen; the management libraries name what computes.
        if (child->name != nullptr && std::string_view(child->name).substr(0, 4) != "card" &&
            std::string_view(child->name).substr(0, 6) != "render")
          append(names.gpu, child->name);
        break;
      default:
        break;
    }
  }
  return names;
}

// What a PCI function is to us; nullopt for what is left out.
std::optional<VertexKind> kind_of(hwloc_obj_t pci, const OsNames& names) {
  const unsigned device_class = pci->attr->pcidev.class_id;
  const unsigned base = device_class >> 8;
  const bool nvidia = pci->attr->pcidev.vendor_id == kVendorNvidia;
  if (!names.network.empty() || !names.fabric.empty()) return VertexKind::nic;
  if (base == 0x02 || device_class == 0x0c06) return VertexKind::nic;
  if (device_class == 0x0680) return nvidia ? std::optional(VertexKind::gpu_switch) : std::nullopt;
  if (device_class == 0x0302 || device_class == 0x0380 || base == 0x12) return VertexKind::gpu;
  if (base == 0x03) return nvidia || !names.gpu.empty() ? VertexKind::gpu : VertexKind::pci_device;
  if (base == 0x01 || base == 0x0b) return VertexKind::pci_device;
  return std::nullopt;
}

std::string pci_address(const PciAttributes& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", unsigned{pci.domain}, unsigned{pci.bus},
                     unsigned{pci.dev}, unsigned{pci.func});
}

bool is_host_bridge(hwloc_obj_t object) {
  return object->type == HWLOC_OBJ_BRIDGE &&
         object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

class DeviceImport {
 public:
  DeviceImport(hwloc_topology_t hwloc, TopologyBuilder& builder, VertexId node,
               DomainImport& domains)
      : hwloc_(hwloc), builder_(builder), node_(node), domains_(domains) {}

  void run() {
    import_below(hwloc_get_root_obj(hwloc_));
    import_distances("NVLinkBandwidth", LinkKind::nvlink);
    import_distances("XGMIBandwidth", LinkKind::xgmi);
  }

 private:
  // Devices hang off processor objects anywhere in the tree.
  void import_below(hwloc_obj_t object) {
    for (hwloc_obj_t io = object->io_first_child; io != nullptr; io = io->next_sibling)
      if (io->type != HWLOC_OBJ_OS_DEVICE && is_worth_showing(io)) {
        const VertexId home = domains_.home_of(object->cpuset);
        if (home == node_) domains_.connect_to_node();
        import_pci(io, home);
      }
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling)
      import_below(child);
  }

  static bool is_worth_showing(hwloc_obj_t object) {
    if (object->type == HWLOC_OBJ_PCI_DEVICE)
      return kind_of(object, os_names_of(object)).has_value();
    for (hwloc_obj_t io = object->io_first_child; io != nullptr; io = io->next_sibling)
      if (is_worth_showing(io)) return true;
    return false;
  }

  void import_pci(hwloc_obj_t object, VertexId parent) {
    if (!is_worth_showing(object)) return;
    const VertexId id =
        object->type == HWLOC_OBJ_BRIDGE ? add_bridge(object, parent) : add_device(object, parent);
    vertices_[object] = id;
    for (hwloc_obj_t io = object->io_first_child; io != nullptr; io = io->next_sibling)
      if (io->type != HWLOC_OBJ_OS_DEVICE) import_pci(io, id);
  }

  VertexId add_bridge(hwloc_obj_t object, VertexId parent) {
    const std::string prefix = builder_.vertex(node_).name;
    if (is_host_bridge(object)) {
      const VertexId id =
          builder_.add_vertex({VertexKind::pci_bridge,
                               fmt::format("{}/hostbridge{}", prefix, host_bridges_++),
                               parent,
                               {}});
      // A root complex is no narrower than the links that leave it.
      builder_.connect(LinkKind::pcie, parent, id, kPcieLatencyNs,
                       std::max(kPcieBandwidth, bandwidth_below(object)), LinkSource::assumed);
      return id;
    }
    const PciAttributes& pci = object->attr->bridge.upstream.pci;
    const std::string address = pci_address(pci);
    const VertexId id = builder_.add_vertex({VertexKind::pci_bridge,
                                             fmt::format("{}/pci-{}", prefix, address),
                                             parent,
                                             {{"pci", address}}});
    connect_pci(parent, id, pci.linkspeed);
    return id;
  }

  VertexId add_device(hwloc_obj_t object, VertexId parent) {
    const OsNames names = os_names_of(object);
    const VertexKind kind = kind_of(object, names).value_or(VertexKind::pci_device);
    const PciAttributes& pci = object->attr->pcidev;
    Vertex vertex{kind, device_name(kind, pci), parent, {{"pci", pci_address(pci)}}};
    const auto put = [&](const char* key, const std::string& value) {
      if (!value.empty()) vertex.info[key] = value;
    };
    put("ids", fmt::format("{:04x}:{:04x}", pci.vendor_id, pci.device_id));
    put("class", fmt::format("{:04x}", pci.class_id));
    put("net", names.network);
    put("fabric", names.fabric);
    put("gpu", names.gpu);
    put("block", names.block);
    put("model", plain(hwloc_obj_get_info_by_name(object, "PCIDevice")));
    put("vendor", plain(hwloc_obj_get_info_by_name(object, "PCIVendor")));
    const VertexId id = builder_.add_vertex(std::move(vertex));
    connect_pci(parent, id, pci.linkspeed);
    return id;
  }

  std::string device_name(VertexKind kind, const PciAttributes& pci) {
    const std::string& prefix = builder_.vertex(node_).name;
    switch (kind) {
      case VertexKind::gpu:
        return fmt::format("{}/gpu{}", prefix, counts_[kind]++);
      case VertexKind::nic:
        return fmt::format("{}/nic{}", prefix, counts_[kind]++);
      case VertexKind::gpu_switch:
        return fmt::format("{}/nvswitch{}", prefix, counts_[kind]++);
      default:
        return fmt::format("{}/pci-{}", prefix, pci_address(pci));
    }
  }

  // hwloc writes 0 where it does not know.
  void connect_pci(VertexId parent, VertexId id, float bandwidth) {
    const bool known = bandwidth > 0;
    builder_.connect(LinkKind::pcie, parent, id, kPcieLatencyNs,
                     known ? static_cast<double>(bandwidth) : kPcieBandwidth,
                     known ? LinkSource::reported : LinkSource::assumed);
  }

  static double bandwidth_below(hwloc_obj_t bridge) {
    double sum = 0;
    for (hwloc_obj_t io = bridge->io_first_child; io != nullptr; io = io->next_sibling) {
      if (!is_worth_showing(io)) continue;
      const double speed =
          static_cast<double>(io->type == HWLOC_OBJ_BRIDGE ? io->attr->bridge.upstream.pci.linkspeed
                                                           : io->attr->pcidev.linkspeed);
      sum += speed > 0 ? speed : kPcieBandwidth;
    }
    return sum;
  }

  // A matrix in MB/s between operating system devices, PCI devices or packages; 0 is no link.
  void import_distances(const char* name, LinkKind kind) {
    hwloc_distances_s* matrix = nullptr;
    unsigned count = 1;
    if (hwloc_distances_get_by_name(hwloc_, name, &count, &matrix, 0) != 0 || count == 0) return;
    for (unsigned i = 0; i < matrix->nbobjs; ++i)
      for (unsigned j = 0; j < i; ++j) {
        const auto value = [&](unsigned from, unsigned to) {
          return static_cast<double>(matrix->values[from * matrix->nbobjs + to]) / 1000;
        };
        const VertexId a = vertex_of(matrix->objs[j]);
        const VertexId b = vertex_of(matrix->objs[i]);
        if (a == VertexId::none || b == VertexId::none || a == b) continue;
        if (value(j, i) <= 0 || value(i, j) <= 0) continue;
        builder_.add_link(
            {kind, a, b, kNvlinkLatencyNs, value(j, i), value(i, j), false, LinkSource::reported});
      }
    hwloc_distances_release(hwloc_, matrix);
  }

  VertexId vertex_of(hwloc_obj_t object) const {
    for (; object != nullptr; object = object->parent) {
      if (const auto found = vertices_.find(object); found != vertices_.end()) return found->second;
      if (object->type != HWLOC_OBJ_OS_DEVICE) return domains_.vertex_of(object);
    }
    return VertexId::none;
  }

  hwloc_topology_t hwloc_;
  TopologyBuilder& builder_;
  VertexId node_;
  DomainImport& domains_;
  std::map<hwloc_obj_t, VertexId> vertices_;
  std::map<VertexKind, int> counts_;
  int host_bridges_ = 0;
};

VertexId add_node(hwloc_topology_t hwloc, TopologyBuilder& builder, const std::string& name) {
  const hwloc_obj_t root = hwloc_get_root_obj(hwloc);
  Vertex vertex{VertexKind::node, name, VertexId::none, {}};
  constexpr std::array<std::pair<const char*, const char*>, 5> kInfos = {
      {{"host", "HostName"},
       {"os", "OSName"},
       {"kernel", "OSRelease"},
       {"arch", "Architecture"},
       {"model", "DMIProductName"}}};
  for (const auto& [key, hwloc_key] : kInfos)
    if (const char* value = hwloc_obj_get_info_by_name(root, hwloc_key))
      vertex.info[key] = plain(value);
  if (root->total_memory > 0) vertex.info["memory_bytes"] = fmt::format("{}", root->total_memory);
  return builder.add_vertex(std::move(vertex));
}

}  // namespace

Result<TopologyBuilder> import_hwloc(const std::string& node_name, const std::string& xml_path) {
  const Result<Hwloc> hwloc = load(xml_path);
  TUTTI_TRY(hwloc);
  TopologyBuilder builder;
  const VertexId node = add_node(hwloc->get(), builder, node_name);
  DomainImport domains(hwloc->get(), builder, node);
  domains.run();
  DeviceImport(hwloc->get(), builder, node, domains).run();
  return builder;
}

}  // namespace tutti::topology
