// hwloc_domains.cc: one rule nests everything: a domain lies in the smallest other domain that
// covers all its processors. That holds for the usual package > memory > cache > cores as well as
// for memory that spans packages or caches that span memory domains. Groups and dies add nothing
// that links would say and are left out; memory without processors (GPU memory, CXL) is shown but
// not linked.

#include "topology/hwloc_domains.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "topology/defaults.hpp"
#include "topology/names.hpp"

namespace tutti::topology {
namespace {

// Beyond this, pairwise links between packages say more than anybody knows.
constexpr std::size_t kMaxPairwiseRoots = 4;

// Which of two domains over the same processors is the outer one: the lower.
int nesting_rank(const Domain& domain) {
  switch (domain.kind) {
    case VertexKind::package:
      return 0;
    case VertexKind::numa:
      return 1;
    case VertexKind::cache:
      return 20 - static_cast<int>(domain.object->attr->cache.depth);
    default:
      return 100;
  }
}

int weight(const Domain& domain) { return hwloc_bitmap_weight(domain.object->cpuset); }

std::string base_name(const Domain& domain) {
  const unsigned index = domain.object->logical_index;
  if (domain.kind == VertexKind::cache)
    return fmt::format("l{}-{}", domain.object->attr->cache.depth, index);
  return fmt::format("{}{}", to_string(domain.kind), index);
}

void put_bytes(Vertex& vertex, const char* key, std::uint64_t bytes) {
  if (bytes > 0) vertex.info[key] = fmt::format("{}", bytes);
}

// "0,24": the processors of a set.
std::string list_of(hwloc_const_cpuset_t cpuset) {
  std::string list;
  for (int cpu = hwloc_bitmap_first(cpuset); cpu >= 0; cpu = hwloc_bitmap_next(cpuset, cpu))
    list += fmt::format("{}{}", list.empty() ? "" : ",", cpu);
  return list;
}

}  // namespace

void DomainImport::run() {
  collect(VertexKind::package, HWLOC_OBJ_PACKAGE);
  collect(VertexKind::numa, HWLOC_OBJ_NUMANODE);
  collect_shared_caches();
  const bool has_cores = hwloc_get_nbobjs_by_type(hwloc_, HWLOC_OBJ_CORE) > 0;
  collect(VertexKind::core, has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU);
  for (Domain& domain : domains_) find_parent(domain);
  emit_children(Domain::kNoParent, node_);
  connect_roots();
}

void DomainImport::collect(VertexKind kind, hwloc_obj_type_t type) {
  for (hwloc_obj_t object = hwloc_get_next_obj_by_type(hwloc_, type, nullptr); object != nullptr;
       object = hwloc_get_next_obj_by_type(hwloc_, type, object))
    domains_.push_back({kind, object});
}

void DomainImport::collect_shared_caches() {
  constexpr hwloc_obj_type_t kCaches[] = {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE,
                                          HWLOC_OBJ_L2CACHE};
  for (const hwloc_obj_type_t type : kCaches)
    for (hwloc_obj_t object = hwloc_get_next_obj_by_type(hwloc_, type, nullptr); object != nullptr;
         object = hwloc_get_next_obj_by_type(hwloc_, type, object))
      if (hwloc_get_nbobjs_inside_cpuset_by_type(hwloc_, object->cpuset, HWLOC_OBJ_CORE) > 1)
        domains_.push_back({VertexKind::cache, object});
}

void DomainImport::find_parent(Domain& domain) const {
  if (hwloc_bitmap_iszero(domain.object->cpuset)) return;
  const Domain* best = nullptr;
  for (const Domain& candidate : domains_) {
    if (candidate.kind == VertexKind::core || candidate.object == domain.object) continue;
    if (!hwloc_bitmap_isincluded(domain.object->cpuset, candidate.object->cpuset)) continue;
    const bool same = weight(candidate) == weight(domain);
    if (same && nesting_rank(candidate) >= nesting_rank(domain)) continue;
    if (better_home(candidate, best)) best = &candidate;
  }
  if (best != nullptr) domain.parent = static_cast<std::size_t>(best - domains_.data());
}

// Smaller, then inner, then first.
bool DomainImport::better_home(const Domain& candidate, const Domain* best) const {
  if (best == nullptr) return true;
  return std::make_tuple(weight(candidate), -nesting_rank(candidate),
                         candidate.object->logical_index) <
         std::make_tuple(weight(*best), -nesting_rank(*best), best->object->logical_index);
}

void DomainImport::emit_children(std::size_t parent, VertexId parent_id) {
  std::vector<Domain*> children;
  for (Domain& domain : domains_)
    if (domain.parent == parent) children.push_back(&domain);
  const auto key = [](const Domain* domain) {
    // Unsigned, so that an empty set (-1) comes last.
    const auto first = static_cast<unsigned>(hwloc_bitmap_first(domain->object->cpuset));
    return std::make_tuple(first, domain->kind, domain->object->logical_index);
  };
  std::sort(children.begin(), children.end(),
            [&](const Domain* x, const Domain* y) { return key(x) < key(y); });
  const std::string prefix = builder_.vertex(node_).name + "/";
  for (Domain* domain : children) {
    Vertex vertex{domain->kind, prefix + base_name(*domain), parent_id, {}};
    describe(*domain, vertex);
    domain->id = builder_.add_vertex(std::move(vertex));
    connect_to_parent(*domain, parent_id);
    emit_children(static_cast<std::size_t>(domain - domains_.data()), domain->id);
  }
}

void DomainImport::describe(const Domain& domain, Vertex& vertex) const {
  const hwloc_obj_t object = domain.object;
  switch (domain.kind) {
    case VertexKind::package:
      if (const char* model = hwloc_obj_get_info_by_name(object, "CPUModel"))
        vertex.info["model"] = plain(model);
      break;
    case VertexKind::numa:
      put_bytes(vertex, "memory_bytes", object->attr->numanode.local_memory);
      if (hwloc_bitmap_iszero(object->cpuset)) vertex.info["cores"] = "none";
      break;
    case VertexKind::cache:
      put_bytes(vertex, "bytes", object->attr->cache.size);
      break;
    default:
      describe_core(object, vertex);
  }
  if (object->subtype != nullptr) vertex.info["subtype"] = plain(object->subtype);
}

void DomainImport::describe_core(hwloc_obj_t core, Vertex& vertex) const {
  vertex.info["pus"] = list_of(core->cpuset);
  for (hwloc_obj_t above = core; above != nullptr; above = above->parent) {
    const bool is_private = hwloc_bitmap_isequal(above->cpuset, core->cpuset);
    if (!is_private) break;
    if (above->type == HWLOC_OBJ_L1CACHE) put_bytes(vertex, "l1d_bytes", above->attr->cache.size);
    if (above->type == HWLOC_OBJ_L2CACHE) put_bytes(vertex, "l2_bytes", above->attr->cache.size);
    if (above->type == HWLOC_OBJ_L3CACHE) put_bytes(vertex, "l3_bytes", above->attr->cache.size);
  }
}

void DomainImport::connect_to_parent(const Domain& domain, VertexId parent) {
  const bool at_node = parent == node_;
  if (domain.kind == VertexKind::core)
    builder_.connect(LinkKind::memory, domain.id, parent, kCoreLatencyNs, kCoreBandwidth,
                     LinkSource::assumed);
  else if (domain.kind == VertexKind::cache && !at_node)
    builder_.connect(LinkKind::memory, domain.id, parent, kCacheLatencyNs, kCacheBandwidth,
                     LinkSource::assumed);
  else if (!at_node)
    builder_.connect(LinkKind::interconnect, domain.id, parent, kDomainLatencyNs, kDomainBandwidth,
                     LinkSource::assumed);
}

std::vector<VertexId> DomainImport::roots() const {
  std::vector<VertexId> found;
  for (const Domain& domain : domains_)
    if (domain.parent == Domain::kNoParent && domain.kind != VertexKind::core &&
        !hwloc_bitmap_iszero(domain.object->cpuset))
      found.push_back(domain.id);
  std::sort(found.begin(), found.end());
  return found;
}

void DomainImport::connect_roots() {
  const std::vector<VertexId> outermost = roots();
  const bool cores_at_node =
      std::any_of(domains_.begin(), domains_.end(), [](const Domain& domain) {
        return domain.kind == VertexKind::core && domain.parent == Domain::kNoParent;
      });
  if (outermost.size() > kMaxPairwiseRoots || cores_at_node) return connect_to_node();
  for (std::size_t i = 0; i < outermost.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      builder_.connect(LinkKind::interconnect, outermost[j], outermost[i], kPackageLatencyNs,
                       kPackageBandwidth, LinkSource::assumed);
}

void DomainImport::connect_to_node() {
  if (node_connected_) return;
  node_connected_ = true;
  for (const VertexId root : roots())
    builder_.connect(LinkKind::interconnect, node_, root, kPackageLatencyNs / 2, kPackageBandwidth,
                     LinkSource::assumed);
}

VertexId DomainImport::home_of(hwloc_const_cpuset_t cpuset) const {
  const Domain* best = nullptr;
  for (const Domain& candidate : domains_) {
    const bool fits = candidate.kind == VertexKind::package || candidate.kind == VertexKind::numa;
    if (fits && hwloc_bitmap_isincluded(cpuset, candidate.object->cpuset) &&
        better_home(candidate, best))
      best = &candidate;
  }
  return best == nullptr ? node_ : best->id;
}

VertexId DomainImport::vertex_of(hwloc_obj_t object) const {
  for (const Domain& domain : domains_)
    if (domain.object == object) return domain.id;
  return VertexId::none;
}

}  // namespace tutti::topology
