// describe.cc: a topology as a tree for people. Says the same once: cores alike share a line, and
// nodes alike are counted. Numbers that nobody reported carry a "~".

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "topology/numbers.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

std::string info_of(const Vertex& vertex, const char* key) {
  const auto found = vertex.info.find(key);
  return found == vertex.info.end() ? std::string() : found->second;
}

std::string human_bytes(const std::string& digits) {
  return base::format_bytes(topology::parse_number<std::uint64_t>(digits).value_or(0));
}

// "0-3,8": ascending numbers with runs joined.
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    // Wide, because the greatest int has no next one.
    while (last + 1 < numbers.size() &&
           numbers[last + 1] == static_cast<std::int64_t>(numbers[last]) + 1)
      ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string plural(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void append(std::string& text, const std::string& more, std::string_view separator = ", ") {
  if (!more.empty()) text += (text.empty() ? "" : std::string(separator)) + more;
}

// What a PCI class stands for, among those that are shown as plain devices.
std::string purpose(const std::string& pci_class) {
  const std::string base = pci_class.substr(0, 2);
  return base == "01"   ? "storage"
         : base == "03" ? "display"
         : base == "0b" ? "coprocessor"
                        : "class " + pci_class;
}

std::string rate_of(const Link& link) {
  const char* mark = link.source == LinkSource::assumed ? "~" : "";
  if (link.bandwidth_ab == link.bandwidth_ba)
    return fmt::format("{}{:.4g} GB/s", mark, link.bandwidth_ab);
  return fmt::format("{}{:.4g}/{:.4g} GB/s", mark, link.bandwidth_ab, link.bandwidth_ba);
}

class Printer {
 public:
  explicit Printer(const Topology& topology) : topology_(topology) {}

  std::string print() {
    print_nodes();
    for (const VertexId id : topology_.of_kind(VertexKind::network_switch))
      out_ += fmt::format("{}: {}\n", topology_.vertex(id).name,
                          plural(topology_.links_at(id).size(), "link"));
    print_links();
    return std::move(out_);
  }

 private:
  using Lines = std::vector<std::string>;

  void print_nodes() {
    const std::vector<VertexId> nodes = topology_.of_kind(VertexKind::node);
    for (std::size_t i = 0; i < nodes.size();) {
      const Lines lines = lines_of_node(nodes[i]);
      const std::string& name = topology_.vertex(nodes[i]).name;
      out_ += fmt::format("{}: {}\n", name, lines[0]);
      for (std::size_t line = 1; line < lines.size(); ++line) out_ += lines[line] + '\n';
      std::size_t last = i;
      while (last + 1 < nodes.size() && lines_of_node(nodes[last + 1]) == lines) ++last;
      if (last > i)
        out_ += fmt::format("{}{}: as {}\n", topology_.vertex(nodes[i + 1]).name,
                            last > i + 1 ? " .. " + topology_.vertex(nodes[last]).name : "", name);
      i = last + 1;
    }
  }

  // First the title without the name, then the tree below.
  Lines lines_of_node(VertexId node) {
    const Vertex& vertex = topology_.vertex(node);
    std::string title = info_of(vertex, "host");
    std::string system = info_of(vertex, "os");
    append(system, info_of(vertex, "kernel"), " ");
    append(system, info_of(vertex, "arch"), " ");
    append(title, system);
    append(title, info_of(vertex, "model"));
    const std::vector<VertexId> below = contained_in(node);
    for (const VertexKind kind :
         {VertexKind::package, VertexKind::core, VertexKind::gpu, VertexKind::nic}) {
      const auto count =
          static_cast<std::size_t>(std::count_if(below.begin(), below.end(), [&](VertexId id) {
            return topology_.vertex(id).kind == kind;
          }));
      if (count > 0)
        append(title, plural(count, kind == VertexKind::nic   ? "NIC"
                                    : kind == VertexKind::gpu ? "GPU"
                                                              : to_string(kind)));
    }
    if (const std::string bytes = info_of(vertex, "memory_bytes"); !bytes.empty())
      append(title, human_bytes(bytes) + " memory");
    Lines lines{title};
    prefix_length_ = vertex.name.size() + 1;
    print_children(node, "", lines);
    return lines;
  }

  std::vector<VertexId> contained_in(VertexId id) const {
    std::vector<VertexId> found;
    for (const VertexId child : topology_.children_of(id)) {
      found.push_back(child);
      const std::vector<VertexId> deeper = contained_in(child);
      found.insert(found.end(), deeper.begin(), deeper.end());
    }
    return found;
  }

  void print_children(VertexId parent, const std::string& indent, Lines& lines) {
    const std::vector<VertexId>& children = topology_.children_of(parent);
    for (std::size_t i = 0; i < children.size();) {
      const std::size_t end = end_of_like_cores(children, i);
      const bool is_last = end == children.size();
      lines.push_back(indent + (is_last ? "└─ " : "├─ ") +
                      (topology_.vertex(children[i]).kind == VertexKind::core
                           ? cores_label(children, i, end)
                           : label(children[i])));
      if (end == i + 1) print_children(children[i], indent + (is_last ? "   " : "│  "), lines);
      i = end;
    }
  }

  // Without what tells one core from the next.
  std::map<std::string, std::string> core_shape(VertexId id) const {
    auto info = topology_.vertex(id).info;
    info["pus"] = fmt::format("{}", cpus_of(topology_, id).size());
    return info;
  }

  std::size_t end_of_like_cores(const std::vector<VertexId>& children, std::size_t i) const {
    const auto is_plain_core = [&](VertexId id) {
      return topology_.vertex(id).kind == VertexKind::core && topology_.children_of(id).empty();
    };
    std::size_t end = i + 1;
    if (!is_plain_core(children[i])) return end;
    while (end < children.size() && is_plain_core(children[end]) &&
           core_shape(children[end]) == core_shape(children[i]))
      ++end;
    return end;
  }

  std::string short_name(VertexId id) const {
    const std::string& name = topology_.vertex(id).name;
    return name.size() > prefix_length_ ? name.substr(prefix_length_) : name;
  }

  std::string cores_label(const std::vector<VertexId>& children, std::size_t begin,
                          std::size_t end) const {
    std::string text = short_name(children[begin]);
    if (end > begin + 1)
      text += fmt::format("..{} ({})", short_name(children[end - 1]), plural(end - begin, "core"));
    std::vector<int> cpus;
    for (std::size_t i = begin; i < end; ++i)
      for (const int cpu : cpus_of(topology_, children[i])) cpus.push_back(cpu);
    std::sort(cpus.begin(), cpus.end());
    const std::size_t threads = cpus.size() / (end - begin);
    std::string details;
    if (threads > 1) append(details, fmt::format("{} threads each", threads));
    if (!cpus.empty()) append(details, "cpu " + ranges(cpus));
    const Vertex& core = topology_.vertex(children[begin]);
    for (const auto& [key, name] : {std::pair("l3_bytes", "L3 "), std::pair("l2_bytes", "L2 "),
                                    std::pair("l1d_bytes", "L1d ")})
      if (const std::string bytes = info_of(core, key); !bytes.empty())
        append(details, name + human_bytes(bytes));
    append(text, details, ": ");
    return text;
  }

  std::string label(VertexId id) const {
    const Vertex& vertex = topology_.vertex(id);
    std::string details;
    for (const char* key : {"net", "fabric", "gpu", "block"}) append(details, info_of(vertex, key));
    for (const char* key : {"memory_bytes", "bytes"})
      if (const std::string bytes = info_of(vertex, key); !bytes.empty())
        append(details, human_bytes(bytes));
    if (info_of(vertex, "cores") == "none") append(details, "no cores");
    if (vertex.kind == VertexKind::pci_device) append(details, purpose(info_of(vertex, "class")));
    append(details, info_of(vertex, "vendor"));
    append(details, info_of(vertex, "model"), vertex.kind == VertexKind::package ? ", " : " ");
    append(details, info_of(vertex, "subtype"));
    const bool named_by_address =
        vertex.kind == VertexKind::pci_device || vertex.kind == VertexKind::pci_bridge;
    if (!named_by_address) append(details, info_of(vertex, "pci"));
    for (const LinkId link : topology_.links_at(id)) append(details, link_label(id, link));
    // "l3-0" is a fine name and a poor label.
    std::string text = vertex.kind == VertexKind::cache ? cache_label(id) : short_name(id);
    append(text, details, ": ");
    return text;
  }

  std::string cache_label(VertexId id) const {
    const std::string name = short_name(id);
    const bool has_level = name.size() > 1 && name[0] == 'l';
    return has_level ? fmt::format("L{} cache", name.substr(1, name.find('-') - 1)) : name;
  }

  // What a vertex says of a link: the way up the PCI tree, to the network, to other GPUs.
  std::string link_label(VertexId id, LinkId link_id) const {
    const Link& link = topology_.link(link_id);
    const VertexId other = link.a == id ? link.b : link.a;
    if (link.kind == LinkKind::pcie && other == topology_.vertex(id).parent)
      return "PCIe " + rate_of(link);
    if (link.kind == LinkKind::network && topology_.vertex(id).kind == VertexKind::nic)
      return "network " + rate_of(link);
    const bool between_gpus = link.kind == LinkKind::nvlink || link.kind == LinkKind::xgmi;
    if (between_gpus && topology_.vertex(id).kind == VertexKind::gpu)
      return fmt::format("{} to {} {}", to_string(link.kind), short_name(other), rate_of(link));
    return {};
  }

  void print_links() {
    out_ += fmt::format("\n{:<14}{:>7}{:>12}{:>12}  {}\n", "links", "count", "GB/s", "latency ns",
                        "source");
    // Alike is what prints alike.
    std::map<std::tuple<LinkKind, double, std::string>, std::size_t> counts;
    for (const Link& link : topology_.links()) {
      const std::string rate =
          link.bandwidth_ab == link.bandwidth_ba
              ? fmt::format("{:.4g}", link.bandwidth_ab)
              : fmt::format("{:.4g}/{:.4g}", link.bandwidth_ab, link.bandwidth_ba);
      ++counts[{link.kind, std::round(link.bandwidth_ab * 100),
                fmt::format("{:>12}{:>12.4g}  {}", rate, link.latency_ns, to_string(link.source))}];
    }
    for (const auto& [alike, count] : counts)
      out_ += fmt::format("{:<14}{:>7}{}\n", to_string(std::get<LinkKind>(alike)), count,
                          std::get<std::string>(alike));
    out_ += "GB/s per direction (memory: both together); ~ and assumed: not known, a usual value\n";
  }

  const Topology& topology_;
  std::string out_;
  std::size_t prefix_length_ = 0;
};

}  // namespace

std::string describe(const Topology& topology) { return Printer(topology).print(); }

}  // namespace tutti
