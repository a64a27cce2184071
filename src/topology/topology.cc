// topology.cc: the topology value and the builder that checks it. Knows no source and no format.

#include "tutti/topology.hpp"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/try.hpp"
#include "topology/names.hpp"

namespace tutti {
namespace {

// Real machines stay below 20; the limit keeps recursion over children safe on any input.
constexpr int kMaxDepth = 64;

Status invalid(std::string text) {
  return {StatusCode::invalid_argument, "topology: " + std::move(text)};
}

bool exists(VertexId id, std::size_t count) { return id > VertexId::none && index_of(id) < count; }

Status check_vertex(const Vertex& vertex, std::size_t position) {
  if (!topology::is_plain_name(vertex.name))
    return invalid(fmt::format("vertex {} needs a name of letters, digits and _./:@+-", position));
  if (vertex.parent != VertexId::none && !exists(vertex.parent, position))
    return invalid(fmt::format("the parent of '{}' must come before it", vertex.name));
  for (const auto& [key, value] : vertex.info)
    if (!topology::is_plain_name(key) || !topology::is_plain_text(value))
      return invalid(fmt::format("info '{}' of '{}' is not short plain text", key, vertex.name));
  return {};
}

Status check_link(const Link& link, std::size_t position, std::size_t vertex_count) {
  const auto bad = [&](std::string_view what) {
    return invalid(fmt::format("link {}: {}", position, what));
  };
  if (!exists(link.a, vertex_count) || !exists(link.b, vertex_count))
    return bad("an end does not exist");
  if (link.a == link.b) return bad("both ends are the same vertex");
  if (!std::isfinite(link.latency_ns) || link.latency_ns < 0)
    return bad("latency must be finite and not negative");
  for (const double bandwidth : {link.bandwidth_ab, link.bandwidth_ba})
    if (!std::isfinite(bandwidth) || bandwidth <= 0)
      return bad("bandwidth must be finite and positive");
  if (link.half_duplex && link.bandwidth_ab != link.bandwidth_ba)
    return bad("a half-duplex link has one bandwidth");
  return {};
}

}  // namespace

std::optional<VertexId> Topology::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

std::vector<VertexId> Topology::of_kind(VertexKind kind) const {
  std::vector<VertexId> ids;
  for (std::size_t i = 0; i < vertices_.size(); ++i)
    if (vertices_[i].kind == kind) ids.push_back(static_cast<VertexId>(i));
  return ids;
}

VertexId Topology::node_of(VertexId id) const {
  while (id != VertexId::none && vertex(id).kind != VertexKind::node) id = vertex(id).parent;
  return id;
}

VertexId TopologyBuilder::add_vertex(Vertex vertex) {
  vertices_.push_back(std::move(vertex));
  return static_cast<VertexId>(vertices_.size() - 1);
}

LinkId TopologyBuilder::add_link(Link link) {
  links_.push_back(link);
  return static_cast<LinkId>(links_.size() - 1);
}

LinkId TopologyBuilder::connect(LinkKind kind, VertexId a, VertexId b, double latency_ns,
                                double bandwidth, LinkSource source) {
  return add_link({.kind = kind,
                   .a = a,
                   .b = b,
                   .latency_ns = latency_ns,
                   .bandwidth_ab = bandwidth,
                   .bandwidth_ba = bandwidth,
                   .half_duplex = kind == LinkKind::memory,
                   .source = source});
}

Result<Topology> TopologyBuilder::build() && {
  Topology made;
  const std::size_t count = vertices_.size();
  made.links_at_.resize(count);
  made.children_of_.resize(count);
  bool has_node = false;
  std::vector<int> depth(count, 1);
  for (std::size_t i = 0; i < count; ++i) {
    const Vertex& vertex = vertices_[i];
    TUTTI_TRY(check_vertex(vertex, i));
    if (!made.by_name_.emplace(vertex.name, static_cast<VertexId>(i)).second)
      return invalid(fmt::format("two vertices are named '{}'", vertex.name));
    if (vertex.parent != VertexId::none) {
      made.children_of_[index_of(vertex.parent)].push_back(static_cast<VertexId>(i));
      depth[i] = depth[index_of(vertex.parent)] + 1;
      if (depth[i] > kMaxDepth)
        return invalid(fmt::format("'{}' is nested deeper than {}", vertex.name, kMaxDepth));
    }
    has_node = has_node || vertex.kind == VertexKind::node;
  }
  if (!has_node) return invalid("there is no node");
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    TUTTI_TRY(check_link(link, i, count));
    made.links_at_[index_of(link.a)].push_back(static_cast<LinkId>(i));
    made.links_at_[index_of(link.b)].push_back(static_cast<LinkId>(i));
  }
  made.vertices_ = std::move(vertices_);
  made.links_ = std::move(links_);
  return made;
}

}  // namespace tutti
