// topology.hpp: what a machine or a cluster looks like, as one immutable value.
//
// Planning, simulation and explanation all start from a Topology, so it carries everything they
// ask: what there is (vertices), what is connected how fast (links), and what contains what (the
// parent of a vertex). Every source fills the same value: discovery on the machine, saved hwloc
// XML, NCCL's XML, a synthetic one-liner, Tutti's own text and JSON. It deliberately does not know
// ranks, communicators or collectives; a placement (ranks to seats) is a plain list beside it.
//
// Bandwidths are in bytes per nanosecond (equal to GB/s) and per direction, latencies in
// nanoseconds. Every link says where its numbers come from, because a plan made from assumed
// numbers should not be trusted like one made from measured ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.hpp"

#pragma GCC visibility push(default)
namespace tutti {

// Position of a vertex in Topology::vertices(), and of a link in Topology::links().
enum class VertexId : std::int32_t { none = -1 };
enum class LinkId : std::int32_t {};

constexpr std::size_t index_of(VertexId id) { return static_cast<std::size_t>(id); }
constexpr std::size_t index_of(LinkId id) { return static_cast<std::size_t>(id); }

enum class VertexKind : std::uint8_t {
  node,     // a host: what shares one operating system
  package,  // a processor socket
  numa,     // a memory domain
  cache,    // a cache that several cores share; private ones are attributes of their core
  core,     // attribute "pus" lists its hardware threads by operating system index
  gpu,
  nic,
  pci_bridge,      // host bridges, ports and switches of PCI Express
  pci_device,      // other devices worth showing, such as disks
  gpu_switch,      // NVSwitch and its like
  network_switch,  // a switch, or the whole network where no more is known
};

enum class LinkKind : std::uint8_t {
  memory,  // cores, shared caches and memory of one domain
  nvlink,  // between GPUs, or a GPU and a gpu_switch
  xgmi,    // the same between AMD GPUs
  pcie,
  interconnect,  // between memory domains and packages of one node
  network,
};

// Where the bandwidth of a link comes from, from least to most trustworthy. (Nothing reports
// latencies; they are defaults unless a person or a measurement says otherwise.)
enum class LinkSource : std::uint8_t {
  assumed,   // a documented default (src/topology/defaults.hpp)
  given,     // written by a person, as in a synthetic line
  reported,  // the machine says so (sysfs, hwloc)
  measured,  // timed on the machine
};

std::string_view to_string(VertexKind kind);
std::string_view to_string(LinkKind kind);
std::string_view to_string(LinkSource source);

struct Vertex {
  VertexKind kind = VertexKind::node;
  std::string name;                         // unique and stable, such as "n0/gpu3"
  VertexId parent = VertexId::none;         // what contains it; none for nodes and the network
  std::map<std::string, std::string> info;  // for people, and details such as "pus", "pci"

  friend bool operator==(const Vertex&, const Vertex&) = default;
};

struct Link {
  LinkKind kind = LinkKind::memory;
  VertexId a = VertexId::none;
  VertexId b = VertexId::none;
  double latency_ns = 0;
  double bandwidth_ab = 0;   // bytes per ns from a to b
  double bandwidth_ba = 0;   // bytes per ns from b to a
  bool half_duplex = false;  // both directions draw on one capacity (then ab == ba)
  LinkSource source = LinkSource::assumed;

  friend bool operator==(const Link&, const Link&) = default;
};

// Vertices, links, and nothing else. Made by TopologyBuilder or one of the sources below.
// Threading  a value; const access from any thread.
class Topology {
 public:
  Topology() = default;

  const std::vector<Vertex>& vertices() const { return vertices_; }
  const std::vector<Link>& links() const { return links_; }

  // Requires  an id of this topology.
  const Vertex& vertex(VertexId id) const { return vertices_[index_of(id)]; }
  const Link& link(LinkId id) const { return links_[index_of(id)]; }
  const std::vector<LinkId>& links_at(VertexId id) const { return links_at_[index_of(id)]; }

  std::optional<VertexId> find(std::string_view name) const;

  // All vertices of a kind, in order of id.
  std::vector<VertexId> of_kind(VertexKind kind) const;

  // What `id` directly contains, in order of id.
  const std::vector<VertexId>& children_of(VertexId id) const { return children_of_[index_of(id)]; }

  // The node (host) that contains `id`; none for the network.
  VertexId node_of(VertexId id) const;

  friend bool operator==(const Topology& x, const Topology& y) {
    return x.vertices_ == y.vertices_ && x.links_ == y.links_;
  }

 private:
  friend class TopologyBuilder;
  std::vector<Vertex> vertices_;
  std::vector<Link> links_;
  std::vector<std::vector<LinkId>> links_at_;
  std::vector<std::vector<VertexId>> children_of_;
  std::map<std::string, VertexId, std::less<>> by_name_;
};

// Collects vertices and links; build() checks that they make sense together.
class TopologyBuilder {
 public:
  // Errors come from build(), so that sources read as plain lists of additions.
  VertexId add_vertex(Vertex vertex);
  LinkId add_link(Link link);

  // A symmetric link; half-duplex when it is a memory link.
  LinkId connect(LinkKind kind, VertexId a, VertexId b, double latency_ns, double bandwidth,
                 LinkSource source);

  Vertex& vertex(VertexId id) { return vertices_[index_of(id)]; }
  Link& link(LinkId id) { return links_[index_of(id)]; }
  std::size_t vertex_count() const { return vertices_.size(); }
  std::size_t link_count() const { return links_.size(); }

  // Ensures  names and info keys are of [A-Za-z0-9_./:@+-], names unique, info values printable
  //          ASCII; parents precede their children; links join two different vertices with
  //          latency >= 0 and bandwidth > 0, both finite; there is at least one node.
  // Errors   invalid_argument, naming the vertex or link.
  Result<Topology> build() &&;

 private:
  std::vector<Vertex> vertices_;
  std::vector<Link> links_;
};

// One link of a path and the direction in which the path crosses it.
struct Hop {
  LinkId link{};
  bool reverse = false;  // crossed from b to a

  friend bool operator==(const Hop&, const Hop&) = default;
};

struct Path {
  std::vector<Hop> hops;  // empty when both ends are the same vertex
  double latency_ns = 0;  // sum over hops
  double bandwidth = 0;   // of the narrowest hop, bytes per ns; infinite when there is no hop

  friend bool operator==(const Path&, const Path&) = default;
};

// Bytes per ns that a hop can carry in its direction.
double bandwidth_of(const Topology& topology, Hop hop);

// The capacity a hop draws on, 0 .. 2 * links - 1: two per link, one when half-duplex. Sum the
// load of all hops by this index to see contention.
std::size_t capacity_index(const Topology& topology, Hop hop);

// The path that data takes between two vertices. Stays on the closest kind of link that connects
// them at all (GPU links and memory, then PCIe, then between packages, then the network); among
// those paths the widest, then the one of lowest latency, then of fewest hops; ties go to lower
// link ids, so every rank computes the same. Never passes through a GPU or a core.
// Errors  invalid_argument when nothing connects them.
// Cost    a search over the links; keep the result.
Result<Path> find_path(const Topology& topology, VertexId from, VertexId to);

// Where ranks can sit.
enum class SeatKind : std::uint8_t {
  automatic,  // GPUs when there are any, else cores, else nodes
  gpu,
  core,
};

// All seats, node by node.
std::vector<VertexId> seats(const Topology& topology, SeatKind kind = SeatKind::automatic);

// The seat of each rank. One seat per rank while there are enough, in order; with more ranks than
// seats every node gets a contiguous block of ranks, in proportion to its seats, going round its
// seats. Empty when there is no seat of the kind.
std::vector<VertexId> default_placement(const Topology& topology, int ranks,
                                        SeatKind kind = SeatKind::automatic);

// The hardware threads of a vertex and all that it contains, ascending operating system indices.
std::vector<int> cpus_of(const Topology& topology, VertexId id);

struct DiscoveryOptions {
  std::string node_name = "";    // name of the node vertex; "n0" when empty
  std::string sysfs_root = "/";  // directory that holds sys/
  std::string hwloc_xml = "";    // this file instead of the machine; no sysfs if its root is "/"
};

// This machine, or a saved one, as hwloc and sysfs show it. Devices that the caller may
// not see are not there; nothing here needs privileges.
// Errors  system_error, corrupt_data (XML that hwloc does not accept).
Result<Topology> discover_topology(const DiscoveryOptions& options = {});

// A topology from one line:  [NODESx]SEATS [key=value]...
//   "4x8 nvlink=450 nic=50"  4 nodes of 8 GPUs on an NVSwitch, one NIC per GPU, one network
//   "1x4 memory=20"          a node with 4 cores on shared memory; "4" is the same by default
// Seats are GPUs when a key speaks of GPUs (nvlink, pcie), else cores. `synthetic_help()` lists
// the keys. Bandwidths in bytes per ns (GB/s) and per direction.
// Errors  invalid_argument, quoting the token and listing what is known.
Result<Topology> parse_synthetic_topology(std::string_view line);
std::string synthetic_help();

// Tutti's own text: a line per vertex and link, for people, files and diffs. Reading it back
// gives an equal value.
std::string to_text(const Topology& topology);
// Errors  corrupt_data, with the number of the line. Safe on any input.
Result<Topology> topology_from_text(std::string_view text);

// The same as JSON.
std::string to_json(const Topology& topology);
// Errors  corrupt_data. Safe on any input.
Result<Topology> topology_from_json(std::string_view json);

// Whatever a user may write for a topology: "" or "auto" discovers, the name of a file is read
// (Tutti's text, JSON, hwloc XML or NCCL's, told apart by content), anything else is a synthetic
// line.
Result<Topology> load_topology(std::string_view what);

// The tree that a person likes to read.
std::string describe(const Topology& topology);

}  // namespace tutti
#pragma GCC visibility pop
