// hwloc_domains.hpp: the processor side of an hwloc import: packages, memory domains, shared
// caches and cores, nested by which processors they cover. Internal to the hwloc corner.
#pragma once

#include <hwloc.h>

#include <string>
#include <vector>

#include "tutti/topology.hpp"

namespace tutti::topology {

// A package, memory domain, shared cache or core on its way to becoming a vertex.
struct Domain {
  VertexKind kind = VertexKind::core;
  hwloc_obj_t object = nullptr;
  std::size_t parent = kNoParent;
  VertexId id = VertexId::none;

  static constexpr std::size_t kNoParent = static_cast<std::size_t>(-1);
};

class DomainImport {
 public:
  DomainImport(hwloc_topology_t hwloc, TopologyBuilder& builder, VertexId node)
      : hwloc_(hwloc), builder_(builder), node_(node) {}

  // Adds all vertices and the links between them.
  void run();

  // The innermost package or memory domain around a set of processors, else the node.
  VertexId home_of(hwloc_const_cpuset_t cpuset) const;

  // The vertex of a package or memory domain, none if it has none.
  VertexId vertex_of(hwloc_obj_t object) const;

  // Links the outermost domains to the node vertex, for devices that hang there. Idempotent.
  void connect_to_node();

 private:
  void collect(VertexKind kind, hwloc_obj_type_t type);
  void collect_shared_caches();
  void find_parent(Domain& domain) const;
  bool better_home(const Domain& candidate, const Domain* best) const;
  void emit_children(std::size_t parent, VertexId parent_id);
  void describe(const Domain& domain, Vertex& vertex) const;
  void describe_core(hwloc_obj_t core, Vertex& vertex) const;
  void connect_to_parent(const Domain& domain, VertexId parent);
  void connect_roots();
  std::vector<VertexId> roots() const;

  hwloc_topology_t hwloc_;
  TopologyBuilder& builder_;
  VertexId node_;
  std::vector<Domain> domains_;
  bool node_connected_ = false;
};

}  // namespace tutti::topology
