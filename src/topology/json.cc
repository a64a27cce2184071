// json.cc: a topology as JSON, for other people's programs. The same content as the text form:
//
//   {"format": "tutti-topology", "version": 1,
//    "vertices": [{"kind": "numa", "name": "n0/numa0", "parent": "n0", "info": {...}}, ...],
//    "links": [{"kind": "memory", "a": NAME, "b": NAME, "latency_ns": 50, "bandwidth_ab": 12,
//               "bandwidth_ba": 12, "half_duplex": true, "source": "assumed"}, ...]}
//
// Bandwidths in bytes per ns. Input is not trusted: everything is looked up before it is used.

#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/try.hpp"
#include "topology/names.hpp"
#include "tutti/topology.hpp"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tutti-topology";
constexpr int kVersion = 1;
constexpr std::size_t kMaxJsonBytes = std::size_t{256} << 20;

Status corrupt(std::string text) {
  return {StatusCode::corrupt_data, "topology JSON: " + std::move(text)};
}

// A member of an object as text, empty when it is missing or of another type.
std::string_view text_at(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

const Json* array_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? &*found : nullptr;
}

Result<double> number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number())
    return corrupt(fmt::format("'{}' must be a number", key));
  return found->get<double>();
}

using Ids = std::map<std::string, VertexId, std::less<>>;

Result<VertexId> id_at(const Ids& ids, const Json& object, const char* key) {
  const auto known = ids.find(text_at(object, key));
  if (known == ids.end()) return corrupt(fmt::format("'{}' must name an earlier vertex", key));
  return known->second;
}

Result<Vertex> vertex_from(const Json& object, const Ids& ids) {
  const auto kind = topology::parse_vertex_kind(text_at(object, "kind"));
  if (!kind) return corrupt("a vertex needs a known kind");
  Vertex vertex{*kind, std::string(text_at(object, "name")), VertexId::none, {}};
  if (const auto parent = object.find("parent"); parent != object.end() && !parent->is_null()) {
    const Result<VertexId> id = id_at(ids, object, "parent");
    TUTTI_TRY(id);
    vertex.parent = *id;
  }
  if (const auto info = object.find("info"); info != object.end()) {
    if (!info->is_object()) return corrupt("'info' must be an object");
    for (const auto& [key, value] : info->items()) {
      if (!value.is_string()) return corrupt("'info' must hold texts");
      vertex.info[key] = value.get_ref<const std::string&>();
    }
  }
  return vertex;
}

Result<Link> link_from(const Json& object, const Ids& ids) {
  const auto kind = topology::parse_link_kind(text_at(object, "kind"));
  const auto source = topology::parse_link_source(text_at(object, "source"));
  if (!kind || !source) return corrupt("a link needs a known kind and source");
  const Result<VertexId> a = id_at(ids, object, "a");
  const Result<VertexId> b = id_at(ids, object, "b");
  const Result<double> latency_ns = number_at(object, "latency_ns");
  const Result<double> bandwidth_ab = number_at(object, "bandwidth_ab");
  const Result<double> bandwidth_ba = number_at(object, "bandwidth_ba");
  for (const Status& status :
       {a.status(), b.status(), latency_ns.status(), bandwidth_ab.status(), bandwidth_ba.status()})
    TUTTI_TRY(status);
  const auto half_duplex = object.find("half_duplex");
  if (half_duplex == object.end() || !half_duplex->is_boolean())
    return corrupt("'half_duplex' must be true or false");
  return Link{*kind,  *a, *b, *latency_ns, *bandwidth_ab, *bandwidth_ba, half_duplex->get<bool>(),
              *source};
}

Json json_of(const Topology& topology, const Vertex& vertex) {
  Json object = {{"kind", to_string(vertex.kind)}, {"name", vertex.name}};
  if (vertex.parent != VertexId::none) object["parent"] = topology.vertex(vertex.parent).name;
  if (!vertex.info.empty()) object["info"] = vertex.info;
  return object;
}

Json json_of(const Topology& topology, const Link& link) {
  return {{"kind", to_string(link.kind)},      {"a", topology.vertex(link.a).name},
          {"b", topology.vertex(link.b).name}, {"latency_ns", link.latency_ns},
          {"bandwidth_ab", link.bandwidth_ab}, {"bandwidth_ba", link.bandwidth_ba},
          {"half_duplex", link.half_duplex},   {"source", to_string(link.source)}};
}

}  // namespace

std::string to_json(const Topology& topology) {
  Json vertices = Json::array();
  for (const Vertex& vertex : topology.vertices()) vertices.push_back(json_of(topology, vertex));
  Json links = Json::array();
  for (const Link& link : topology.links()) links.push_back(json_of(topology, link));
  const Json whole = {{"format", kFormat},
                      {"version", kVersion},
                      {"vertices", std::move(vertices)},
                      {"links", std::move(links)}};
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Topology> topology_from_json(std::string_view json) {
  if (json.size() > kMaxJsonBytes) return corrupt("larger than 256 MiB");
  const Json whole = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!whole.is_object()) return corrupt("not a JSON object");
  const auto version = whole.find("version");
  if (text_at(whole, "format") != kFormat || version == whole.end() || *version != kVersion)
    return corrupt(fmt::format("needs \"format\": \"{}\", \"version\": {}", kFormat, kVersion));
  const Json* vertices = array_at(whole, "vertices");
  const Json* links = array_at(whole, "links");
  if (vertices == nullptr || links == nullptr) return corrupt("needs 'vertices' and 'links'");

  TopologyBuilder builder;
  Ids ids;
  for (const Json& object : *vertices) {
    Result<Vertex> vertex = vertex_from(object, ids);
    TUTTI_TRY(vertex);
    std::string name = vertex->name;
    ids.emplace(std::move(name), builder.add_vertex(std::move(vertex.value())));
  }
  for (const Json& object : *links) {
    const Result<Link> link = link_from(object, ids);
    TUTTI_TRY(link);
    builder.add_link(*link);
  }
  Result<Topology> built = std::move(builder).build();
  if (!built.ok()) return corrupt(built.status().message());
  return built;
}

}  // namespace tutti
