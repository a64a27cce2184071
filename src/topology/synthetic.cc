// synthetic.cc: whole clusters from one line, for planning, simulation and tests. What the line
// does not say comes from defaults.hpp and is marked as assumed in the links. Knows no machine.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "topology/defaults.hpp"
#include "topology/numbers.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

constexpr int kMaxNodes = 1 << 16;
constexpr int kMaxSeats = 1 << 17;
constexpr int kMaxNumas = 64;  // of a node; they are linked pairwise

// A number of the line, and whether the line said it.
struct Setting {
  double value = 0;
  bool given = false;

  LinkSource source() const { return given ? LinkSource::given : LinkSource::assumed; }
};

struct Shape {
  int nodes = 1;
  int seats = 1;
  Setting nvlink{topology::kNvlinkBandwidth};
  Setting nvlink_ns{topology::kNvlinkLatencyNs};
  Setting pcie{topology::kPcieGen5Bandwidth};
  Setting pcie_ns{topology::kPcieLatencyNs};
  Setting nic{topology::kSyntheticNicBandwidth};
  Setting nic_ns{topology::kNetworkLatencyNs};
  Setting nics{0};
  Setting memory{topology::kCoreBandwidth};
  Setting memory_ns{topology::kCoreLatencyNs};
  Setting numa{1};
  Setting interconnect{topology::kPackageBandwidth};
  Setting interconnect_ns{topology::kPackageLatencyNs};

  bool has_gpus() const { return nvlink.given || pcie.given; }
};

enum class Takes { bandwidth, latency, count };

struct Key {
  std::string_view name;
  Setting Shape::*setting;
  Takes takes;
  std::string_view help;
};

constexpr std::array<Key, 12> kKeys = {{
    {"nvlink", &Shape::nvlink, Takes::bandwidth, "GB/s of a GPU into its NVSwitch"},
    {"nvlink_ns", &Shape::nvlink_ns, Takes::latency, "between a GPU and its NVSwitch"},
    {"pcie", &Shape::pcie, Takes::bandwidth, "GB/s of a PCIe link; without nvlink, GPUs use it"},
    {"pcie_ns", &Shape::pcie_ns, Takes::latency, "of a PCIe link"},
    {"nic", &Shape::nic, Takes::bandwidth, "GB/s of a NIC"},
    {"nic_ns", &Shape::nic_ns, Takes::latency, "between a NIC and the network"},
    {"nics", &Shape::nics, Takes::count, "NICs of a node; default one per GPU, or one for cores"},
    {"memory", &Shape::memory, Takes::bandwidth, "GB/s between a core and its memory"},
    {"memory_ns", &Shape::memory_ns, Takes::latency, "between a core and its memory"},
    {"numa", &Shape::numa, Takes::count, "memory domains of a node"},
    {"interconnect", &Shape::interconnect, Takes::bandwidth, "GB/s between memory domains"},
    {"interconnect_ns", &Shape::interconnect_ns, Takes::latency, "between memory domains"},
}};

Status invalid(std::string text) {
  return {StatusCode::invalid_argument, "topology line: " + std::move(text)};
}

std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(" \t"));
  line.remove_prefix(word.size());
  return word;
}

std::optional<int> count_from(std::string_view text, int largest) {
  const auto count = topology::parse_number<int>(text);
  if (!count || *count < 1 || *count > largest) return std::nullopt;
  return count;
}

Status read_size(std::string_view word, Shape& shape) {
  const std::size_t x = word.find('x');
  const bool has_nodes = x != std::string_view::npos;
  const auto nodes = has_nodes ? count_from(word.substr(0, x), kMaxNodes) : std::optional(1);
  const auto seats = count_from(has_nodes ? word.substr(x + 1) : word, kMaxSeats);
  if (!nodes || !seats || static_cast<long>(*nodes) * *seats > kMaxSeats)
    return invalid(
        fmt::format("'{}' is no size: write [NODESx]SEATS, such as 4x8, of at most {} "
                    "seats, or the name of a file that exists",
                    word, kMaxSeats));
  shape.nodes = *nodes;
  shape.seats = *seats;
  return {};
}

std::string known_keys() {
  std::string names;
  for (const Key& key : kKeys) names += fmt::format("{}{}", names.empty() ? "" : ", ", key.name);
  return names;
}

bool acceptable(Takes takes, double value) {
  if (!std::isfinite(value)) return false;
  if (takes == Takes::count) return value >= 0 && value <= kMaxSeats && value == std::floor(value);
  return takes == Takes::latency ? value >= 0 : value > 0;
}

Status read_setting(std::string_view word, Shape& shape) {
  const std::size_t equals = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, equals);
  const auto key = std::find_if(kKeys.begin(), kKeys.end(),
                                [&](const Key& known) { return known.name == name; });
  if (key == kKeys.end() || equals == word.size())
    return invalid(fmt::format("'{}' is not one of KEY=NUMBER with KEY in {}", word, known_keys()));
  const auto value = topology::parse_number<double>(word.substr(equals + 1));
  if (!value || !acceptable(key->takes, *value))
    return invalid(fmt::format("'{}': {} ({}) does not take that value", word, name, key->help));
  Setting& setting = shape.*(key->setting);
  if (setting.given) return invalid(fmt::format("'{}' stands twice", name));
  setting = {*value, true};
  return {};
}

Status complete(Shape& shape) {
  if (shape.has_gpus() && (shape.memory.given || shape.memory_ns.given))
    return invalid("memory= describes cores, but nvlink= or pcie= say that seats are GPUs");
  if (!shape.has_gpus() && shape.nvlink_ns.given) return invalid("nvlink_ns= needs nvlink=");
  const int most_numas = std::min(shape.seats, kMaxNumas);
  if (shape.numa.value < 1 || shape.numa.value > most_numas)
    return invalid(fmt::format("numa={} must be between 1 and {}, for a node of {} seats",
                               shape.numa.value, most_numas, shape.seats));
  if (shape.nodes > 1 && shape.nics.given && shape.nics.value == 0)
    return invalid("several nodes need NICs: nics=0 leaves them unconnected");
  if (!shape.nics.given && (shape.nodes > 1 || shape.nic.given))
    shape.nics.value = shape.has_gpus() ? shape.seats : 1;
  if (static_cast<double>(shape.nodes) * shape.nics.value > kMaxSeats)
    return invalid(
        fmt::format("nics={} are too many: at most {} in all", shape.nics.value, kMaxSeats));
  // A slot narrower than the NIC in it would only surprise whoever named the NIC.
  if (!shape.pcie.given) shape.pcie.value = std::max(shape.pcie.value, shape.nic.value);
  return {};
}

// Emits the vertices and links of a shape, node by node.
class Emitter {
 public:
  explicit Emitter(const Shape& shape) : shape_(shape) {}

  Result<Topology> emit() && {
    if (shape_.nics.value > 0)
      network_ = add(VertexKind::network_switch, "network", VertexId::none);
    for (int node = 0; node < shape_.nodes; ++node) emit_node(fmt::format("n{}", node));
    return std::move(builder_).build();
  }

 private:
  VertexId add(VertexKind kind, std::string name, VertexId parent) {
    return builder_.add_vertex({kind, std::move(name), parent, {}});
  }

  void connect(LinkKind kind, VertexId a, VertexId b, Setting latency_ns, Setting bandwidth) {
    builder_.connect(kind, a, b, latency_ns.value, bandwidth.value, bandwidth.source());
  }

  void emit_node(const std::string& name) {
    const VertexId node = add(VertexKind::node, name, VertexId::none);
    const std::vector<VertexId> numas = emit_numas(name, node);
    if (shape_.has_gpus())
      emit_gpus(name, node, numas);
    else
      emit_cores(name, numas);
  }

  std::vector<VertexId> emit_numas(const std::string& node_name, VertexId node) {
    std::vector<VertexId> numas;
    for (int i = 0; i < static_cast<int>(shape_.numa.value); ++i) {
      numas.push_back(add(VertexKind::numa, fmt::format("{}/numa{}", node_name, i), node));
      for (int j = 0; j < i; ++j)
        connect(LinkKind::interconnect, numas[static_cast<std::size_t>(j)], numas.back(),
                shape_.interconnect_ns, shape_.interconnect);
    }
    return numas;
  }

  // Item i of n falls into this share of `among`: contiguous, as even as can be.
  static VertexId share(const std::vector<VertexId>& among, int i, int n) {
    return among[static_cast<std::size_t>(i) * among.size() / static_cast<std::size_t>(n)];
  }

  void emit_cores(const std::string& node_name, const std::vector<VertexId>& numas) {
    for (int i = 0; i < shape_.seats; ++i) {
      const VertexId numa = share(numas, i, shape_.seats);
      const VertexId core = add(VertexKind::core, fmt::format("{}/core{}", node_name, i), numa);
      builder_.vertex(core).info["pus"] = fmt::format("{}", i);
      connect(LinkKind::memory, core, numa, shape_.memory_ns, shape_.memory);
    }
    emit_nics(node_name, numas);
  }

  // GPUs and NICs hang off PCIe switches, one for each NIC as long as there are GPUs for them.
  void emit_gpus(const std::string& node_name, VertexId node, const std::vector<VertexId>& numas) {
    const int nics = static_cast<int>(shape_.nics.value);
    const int bridge_count = nics > 0 ? std::min(nics, shape_.seats) : shape_.seats;
    std::vector<VertexId> bridges;
    for (int i = 0; i < bridge_count; ++i) {
      const VertexId numa = share(numas, i, bridge_count);
      bridges.push_back(add(VertexKind::pci_bridge, fmt::format("{}/pcie{}", node_name, i), numa));
      connect(LinkKind::pcie, numa, bridges.back(), shape_.pcie_ns, shape_.pcie);
    }
    VertexId gpu_switch = VertexId::none;
    if (shape_.nvlink.given)
      gpu_switch = add(VertexKind::gpu_switch, fmt::format("{}/nvswitch", node_name), node);
    for (int i = 0; i < shape_.seats; ++i) {
      const VertexId bridge = share(bridges, i, shape_.seats);
      const VertexId gpu = add(VertexKind::gpu, fmt::format("{}/gpu{}", node_name, i), bridge);
      connect(LinkKind::pcie, bridge, gpu, shape_.pcie_ns, shape_.pcie);
      if (gpu_switch != VertexId::none)
        connect(LinkKind::nvlink, gpu, gpu_switch, shape_.nvlink_ns, shape_.nvlink);
    }
    emit_nics(node_name, bridges);
  }

  void emit_nics(const std::string& node_name, const std::vector<VertexId>& slots) {
    const int nics = static_cast<int>(shape_.nics.value);
    for (int i = 0; i < nics; ++i) {
      const VertexId slot = share(slots, i, nics);
      const VertexId nic = add(VertexKind::nic, fmt::format("{}/nic{}", node_name, i), slot);
      connect(LinkKind::pcie, slot, nic, shape_.pcie_ns, shape_.pcie);
      connect(LinkKind::network, nic, network_, shape_.nic_ns, shape_.nic);
    }
  }

  const Shape& shape_;
  TopologyBuilder builder_;
  VertexId network_ = VertexId::none;
};

}  // namespace

Result<Topology> parse_synthetic_topology(std::string_view line) {
  Shape shape;
  TUTTI_TRY(read_size(next_word(line), shape));
  for (std::string_view word = next_word(line); !word.empty(); word = next_word(line))
    TUTTI_TRY(read_setting(word, shape));
  TUTTI_TRY(complete(shape));
  return Emitter(shape).emit();
}

std::string synthetic_help() {
  const Shape defaults;
  std::string help =
      "[NODESx]SEATS [KEY=NUMBER]..., such as \"4x8 nvlink=450 nic=50\" or \"1x4 memory=20\"\n"
      "SEATS are GPUs when nvlink= or pcie= is there, else cores; GB/s per direction\n";
  for (const Key& key : kKeys) {
    help += fmt::format("  {:<16} {}", key.name, key.help);
    if (key.takes != Takes::count || key.name == "numa")
      help += fmt::format(" (default {})", (defaults.*(key.setting)).value);
    help += '\n';
  }
  return help;
}

}  // namespace tutti
