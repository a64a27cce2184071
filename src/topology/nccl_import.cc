// nccl_import.cc: see nccl_import.hpp. Elements and attributes that say nothing about speed or
// place are passed over, as NCCL passes them over.
#include "topology/nccl_import.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "topology/defaults.hpp"
#include "topology/names.hpp"
#include "topology/nccl_speeds.hpp"
#include "topology/numbers.hpp"
#include "topology/sysfs.hpp"
#include "topology/xml.hpp"

namespace tutti::topology {
namespace {

// PCI classes, by how they begin.
constexpr std::string_view kSwitchClass = "0x068000";  // NVSwitch
constexpr std::string_view kCpuClass = "0x068001";
// Where a GPU's link ends that the machine's owner hides.
constexpr std::string_view kHiddenTarget = "fffffff:";

Status corrupt(const XmlElement& element, const std::string& what) {
  return Status(StatusCode::corrupt_data,
                fmt::format("NCCL topology line {}: <{}> {}", element.line, element.name, what));
}

template <typename Number>
Number number_at(const XmlElement& element, std::string_view name, Number otherwise) {
  return parse_number<Number>(element.attribute(name)).value_or(otherwise);
}

// As the driver writes it, too.
std::string bus_id_at(const XmlElement& element, std::string_view name) {
  std::string id(element.attribute(name));
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return id;
}

class Importer {
 public:
  Result<Topology> import(const XmlElement& system) {
    for (const XmlElement& element : system.children)
      if (element.name == "cpu") TUTTI_TRY(add_cpu(element));
    if (nodes_.empty()) return corrupt(system, "has no <cpu>");
    connect_cpus();
    for (const GpuLink& link : gpu_links_) connect_gpu(link);
    connect_pairs();
    for (const auto& [from, target] : switch_links_) connect_switches(from, target);
    auto built = std::move(builder_).build();
    if (!built.ok()) return corrupt(system, "cannot be: " + built.status().message());
    return built;
  }

 private:
  struct Node {
    VertexId vertex = VertexId::none;
    std::vector<VertexId> cpus;
    double between_cpus = 0;
    std::map<std::string, VertexId> by_bus_id;  // of PCI
    VertexId gpu_switch = VertexId::none;
    std::map<int, VertexId> nics;  // by the number that NCCL gives them
    int gpus = 0;
  };
  // What one side says of a link.
  struct GpuLink {
    Node* node = nullptr;
    VertexId gpu = VertexId::none;
    VertexId cpu = VertexId::none;
    LinkKind kind = LinkKind::nvlink;
    std::string target;
    std::string target_class;
    double bandwidth = 0;
  };
  // Where a device hangs.
  struct Place {
    Node* node = nullptr;
    VertexId cpu = VertexId::none;
    VertexId parent = VertexId::none;
  };

  std::string name_in(const Node& node, std::string_view what) {
    return fmt::format("{}/{}", builder_.vertex(node.vertex).name, what);
  }

  Node& node_of(const XmlElement& cpu) {
    const auto [found, is_new] = nodes_.try_emplace(std::string(cpu.attribute("host_hash")));
    if (is_new)
      found->second.vertex = builder_.add_vertex(
          {VertexKind::node, fmt::format("n{}", nodes_.size() - 1), VertexId::none, {}});
    return found->second;
  }

  Status add_cpu(const XmlElement& element) {
    Node& node = node_of(element);
    const VertexId cpu =
        builder_.add_vertex({VertexKind::numa,
                             name_in(node, fmt::format("numa{}", node.cpus.size())),
                             node.vertex,
                             {}});
    if (const std::string_view number = element.attribute("numaid"); is_plain_text(number))
      builder_.vertex(cpu).info["numaid"] = number;
    node.cpus.push_back(cpu);
    node.between_cpus =
        cpu_bandwidth({element.attribute("arch"), element.attribute("vendor"),
                       number_at(element, "familyid", 0), number_at(element, "modelid", 0)});
    for (const XmlElement& child : element.children) {
      const Place place{&node, cpu, cpu};
      if (child.name == "pci") TUTTI_TRY(add_pci(child, place));
      if (child.name == "nic") add_nics(child, place, "");
    }
    return Status();
  }

  // ---- PCI Express ----

  Status add_pci(const XmlElement& element, const Place& place) {
    const std::string id = bus_id_at(element, "busid");
    if (!is_plain_name(id)) return corrupt(element, "has no busid");
    if (element.attribute("class").starts_with(kSwitchClass)) return Status();  // GPUs tell of it
    const Place here{place.node, place.cpu, VertexId::none};
    VertexId above = VertexId::none;
    for (const XmlElement& child : element.children) {
      if (child.name == "gpu") {
        above = add_gpu(child, element, place, id);
      } else if (child.name == "nic") {
        for (const VertexId nic : add_nics(child, place, id))
          connect_pci(element, place, above = nic);
      }
    }
    if (above == VertexId::none) {
      above = builder_.add_vertex(
          {VertexKind::pci_bridge, name_in(*place.node, "pci-" + id), place.parent, {{"pci", id}}});
      connect_pci(element, place, above);
    }
    if (!place.node->by_bus_id.emplace(id, above).second)
      return corrupt(element, fmt::format("of busid {} is there twice", id));
    for (const XmlElement& child : element.children) {
      if (child.name == "pci") TUTTI_TRY(add_pci(child, {here.node, here.cpu, above}));
      if (child.name == "pcilink") switch_links_.emplace_back(id, bus_id_at(child, "target"));
    }
    return Status();
  }

  // A width of 0 is that of most.
  void connect_pci(const XmlElement& element, const Place& place, VertexId device) {
    const std::string_view width = element.attribute("link_width");
    const auto told = pcie_bandwidth(element.attribute("link_speed"),
                                     width.empty() || width == "0" ? "16" : width);
    builder_.connect(LinkKind::pcie, place.parent, device, kPcieLatencyNs,
                     told.value_or(kPcieBandwidth),
                     told ? LinkSource::reported : LinkSource::assumed);
  }

  // Both ends are of one node, where they are there at all.
  void connect_switches(const std::string& from, const std::string& target) {
    for (auto& [unused, node] : nodes_) {
      const auto a = node.by_bus_id.find(from);
      const auto b = node.by_bus_id.find(target);
      if (a == node.by_bus_id.end() || b == node.by_bus_id.end() || from >= target) continue;
      builder_.connect(LinkKind::pcie, a->second, b->second, kPcieLatencyNs, kLocalBandwidth,
                       LinkSource::assumed);
    }
  }

  // ---- GPUs ----

  VertexId add_gpu(const XmlElement& element, const XmlElement& pci, const Place& place,
                   const std::string& id) {
    Node& node = *place.node;
    const VertexId gpu = builder_.add_vertex({VertexKind::gpu,
                                              name_in(node, fmt::format("gpu{}", node.gpus++)),
                                              place.parent,
                                              {{"pci", id}}});
    if (const std::string_view sm = element.attribute("sm"); !sm.empty() && is_plain_text(sm))
      builder_.vertex(gpu).info["sm"] = sm;
    connect_pci(pci, place, gpu);
    for (const XmlElement& child : element.children) {
      const int count = number_at(child, "count", 0);
      if (count < 1) continue;
      GpuLink link{&node,
                   gpu,
                   place.cpu,
                   LinkKind::nvlink,
                   bus_id_at(child, "target"),
                   std::string(child.attribute("tclass")),
                   0};
      if (child.name == "nvlink") {
        link.bandwidth = count * nvlink_bandwidth(number_at(element, "sm", 0));
      } else if (child.name == "xgmi") {
        link.kind = LinkKind::xgmi;
        link.bandwidth = count * xgmi_bandwidth(element.attribute("gcn"));
      } else if (child.name == "c2c") {
        link.target_class = kCpuClass;
        link.bandwidth = count * number_at(child, "bw", 0.0) / 1000;
      }
      if (link.bandwidth > 0) gpu_links_.push_back(std::move(link));
    }
    return gpu;
  }

  // All of them lead to one switch, unless they lead to a GPU or to processors.
  void connect_gpu(const GpuLink& link) {
    Node& node = *link.node;
    const bool is_hidden = link.target.starts_with(kHiddenTarget);
    if (link.target_class.starts_with(kCpuClass)) {
      builder_.connect(link.kind, link.gpu, link.cpu, kNvlinkLatencyNs, link.bandwidth,
                       LinkSource::reported);
    } else if (is_hidden || link.target_class.starts_with(kSwitchClass)) {
      auto& [of_node, bandwidth] = to_switch_[link.gpu];
      of_node = &node;
      bandwidth += link.bandwidth;
    } else if (const auto peer = node.by_bus_id.find(link.target);
               peer != node.by_bus_id.end() && peer->second != link.gpu) {
      between_gpus_[{link.gpu, peer->second}] = {link.kind, link.bandwidth};
    }
  }

  // A link that one side alone tells of is as fast both ways.
  void connect_pairs() {
    for (const auto& [ends, there] : between_gpus_) {
      const auto back = between_gpus_.find({ends.second, ends.first});
      if (back != between_gpus_.end() && ends.second < ends.first) continue;
      const double here = back == between_gpus_.end() ? there.bandwidth : back->second.bandwidth;
      builder_.add_link({there.kind, ends.first, ends.second, kNvlinkLatencyNs, there.bandwidth,
                         here, false, LinkSource::reported});
    }
    for (const auto& [gpu, link] : to_switch_) {
      const auto& [node, bandwidth] = link;
      if (node->gpu_switch == VertexId::none)
        node->gpu_switch = builder_.add_vertex(
            {VertexKind::gpu_switch, name_in(*node, "nvswitch"), node->vertex, {}});
      builder_.connect(LinkKind::nvlink, gpu, node->gpu_switch, kNvlinkLatencyNs, bandwidth,
                       LinkSource::reported);
    }
  }

  // ---- NICs ----

  // Those that are new: one that hangs nowhere in particular is named below every <cpu>.
  std::vector<VertexId> add_nics(const XmlElement& element, const Place& place,
                                 const std::string& bus_id) {
    std::vector<VertexId> made;
    for (const XmlElement& net : element.children) {
      const auto number = parse_number<int>(net.attribute("dev"));
      if (net.name != "net" || !number) continue;
      const auto [found, is_new] = place.node->nics.try_emplace(*number, VertexId::none);
      if (!is_new) continue;
      const VertexId nic = builder_.add_vertex(
          {VertexKind::nic,
           name_in(*place.node, fmt::format("nic{}", place.node->nics.size() - 1)),
           place.parent,
           {}});
      found->second = nic;
      if (!bus_id.empty()) builder_.vertex(nic).info["pci"] = bus_id;
      builder_.vertex(nic).info["net"] = plain(std::string(net.attribute("name")).c_str());
      if (bus_id.empty())
        builder_.connect(LinkKind::interconnect, place.cpu, nic, kDomainLatencyNs, kDomainBandwidth,
                         LinkSource::assumed);
      connect_to_network(net, nic);
      made.push_back(nic);
    }
    return made;
  }

  void connect_to_network(const XmlElement& net, VertexId nic) {
    constexpr double kMegabitsPerByteOfNs = 8000;
    if (network_ == VertexId::none)
      network_ = builder_.add_vertex({VertexKind::network_switch, "network", VertexId::none, {}});
    const double speed = number_at(net, "speed", 0.0);
    const double latency_ns = 1000 * number_at(net, "latency", 0.0);
    builder_.connect(LinkKind::network, nic, network_, std::max(kNetworkLatencyNs, latency_ns),
                     speed > 0 ? speed / kMegabitsPerByteOfNs : kNicBandwidth,
                     speed > 0 ? LinkSource::reported : LinkSource::assumed);
  }

  // ---- Processors ----

  void connect_cpus() {
    for (const auto& [unused, node] : nodes_)
      for (std::size_t a = 0; a < node.cpus.size(); ++a)
        for (std::size_t b = a + 1; b < node.cpus.size(); ++b)
          builder_.connect(LinkKind::interconnect, node.cpus[a], node.cpus[b], kPackageLatencyNs,
                           node.between_cpus, LinkSource::assumed);
  }

  struct Speed {
    LinkKind kind = LinkKind::nvlink;
    double bandwidth = 0;
  };
  TopologyBuilder builder_;
  VertexId network_ = VertexId::none;
  std::map<std::string, Node> nodes_;  // by host_hash
  std::vector<GpuLink> gpu_links_;
  std::vector<std::pair<std::string, std::string>> switch_links_;
  std::map<std::pair<VertexId, VertexId>, Speed> between_gpus_;
  std::map<VertexId, std::pair<Node*, double>> to_switch_;  // by GPU
};

}  // namespace

Result<Topology> import_nccl(std::string_view xml) {
  const auto system = parse_xml(xml);
  TUTTI_TRY(system);
  if (system->name != "system") return corrupt(*system, "is no <system>");
  const std::string_view version = system->attribute("version");
  if (version != "1" && version != "2")
    return corrupt(*system, fmt::format("has version '{}', and not 1 (NCCL) or 2 (RCCL)", version));
  return Importer().import(*system);
}

}  // namespace tutti::topology
