// paths.cc: which way data takes between two vertices.
//
// One number cannot rank paths: the widest detour may lead through the network and back, the one
// of lowest latency over a bridge that carries nothing. So three passes narrow the choice:
// the closest kinds of links that connect the two at all, then the widest bottleneck on those,
// then the lowest latency at that width. Each pass is an exact search, hence deterministic.

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/topology.hpp"

namespace tutti {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kFarthest = 3;

// How far a kind of link leads away, as data placement sees it.
int distance_class(LinkKind kind) {
  switch (kind) {
    case LinkKind::memory:
    case LinkKind::nvlink:
    case LinkKind::xgmi:
      return 0;
    case LinkKind::pcie:
      return 1;
    case LinkKind::interconnect:
      return 2;
    case LinkKind::network:
      return kFarthest;
  }
  return kFarthest;
}

bool may_pass_through(VertexKind kind) {
  return kind != VertexKind::gpu && kind != VertexKind::core;
}

struct Step {
  VertexId to;
  Hop hop;
  double bandwidth;
};

// Calls `visit` with each step out of `at` over links of at most `farthest` class.
template <typename Visit>
void for_each_step(const Topology& topology, VertexId at, int farthest, Visit visit) {
  for (const LinkId id : topology.links_at(at)) {
    const Link& link = topology.link(id);
    if (distance_class(link.kind) > farthest) continue;
    const Hop hop{id, link.b == at};
    visit(Step{hop.reverse ? link.a : link.b, hop, bandwidth_of(topology, hop)});
  }
}

// The widest bottleneck between the two, 0 when they are not connected.
double widest(const Topology& topology, VertexId from, VertexId to, int farthest) {
  std::vector<double> width(topology.vertices().size(), 0);
  std::priority_queue<std::pair<double, VertexId>> open;
  width[index_of(from)] = kInfinity;
  open.emplace(kInfinity, from);
  while (!open.empty()) {
    const auto [reached, at] = open.top();
    open.pop();
    if (at == to) return reached;
    if (reached < width[index_of(at)]) continue;
    if (at != from && !may_pass_through(topology.vertex(at).kind)) continue;
    for_each_step(topology, at, farthest, [&, here = reached](const Step& step) {
      const double through = std::min(here, step.bandwidth);
      if (through <= width[index_of(step.to)]) return;
      width[index_of(step.to)] = through;
      open.emplace(through, step.to);
    });
  }
  return 0;
}

struct Label {
  double latency_ns = kInfinity;
  int hops = 0;
  Hop last{static_cast<LinkId>(std::numeric_limits<std::int32_t>::max())};
  VertexId before = VertexId::none;

  auto key() const { return std::make_tuple(latency_ns, hops); }
  bool better_than(const Label& other) const {
    return std::make_tuple(latency_ns, hops, last.link) <
           std::make_tuple(other.latency_ns, other.hops, other.last.link);
  }
};

// Labels of the quickest way to every vertex up to `to`, over hops of at least `width`.
std::vector<Label> quickest(const Topology& topology, VertexId from, VertexId to, int farthest,
                            double width) {
  std::vector<Label> labels(topology.vertices().size());
  using Entry = std::tuple<double, int, VertexId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  labels[index_of(from)].latency_ns = 0;
  open.emplace(0.0, 0, from);
  while (!open.empty()) {
    const auto [latency_ns, hops, at] = open.top();
    open.pop();
    if (at == to) break;
    if (std::make_tuple(latency_ns, hops) != labels[index_of(at)].key()) continue;
    if (at != from && !may_pass_through(topology.vertex(at).kind)) continue;
    for_each_step(
        topology, at, farthest, [&, lat = latency_ns, n = hops, v = at](const Step& step) {
          if (step.bandwidth < width || step.to == from) return;
          Label candidate{lat + topology.link(step.hop.link).latency_ns, n + 1, step.hop, v};
          Label& known = labels[index_of(step.to)];
          if (!candidate.better_than(known)) return;
          if (candidate.key() < known.key())
            open.emplace(candidate.latency_ns, candidate.hops, step.to);
          known = candidate;
        });
  }
  return labels;
}

}  // namespace

double bandwidth_of(const Topology& topology, Hop hop) {
  const Link& link = topology.link(hop.link);
  return hop.reverse ? link.bandwidth_ba : link.bandwidth_ab;
}

std::size_t capacity_index(const Topology& topology, Hop hop) {
  const bool second = hop.reverse && !topology.link(hop.link).half_duplex;
  return 2 * index_of(hop.link) + (second ? 1 : 0);
}

Result<Path> find_path(const Topology& topology, VertexId from, VertexId to) {
  if (from == to) return Path{{}, 0, kInfinity};
  int farthest = 0;
  double width = widest(topology, from, to, farthest);
  while (width == 0 && farthest < kFarthest) width = widest(topology, from, to, ++farthest);
  if (width == 0)
    return Status(StatusCode::invalid_argument,
                  fmt::format("topology: nothing connects '{}' and '{}'",
                              topology.vertex(from).name, topology.vertex(to).name));
  const std::vector<Label> labels = quickest(topology, from, to, farthest, width);
  Path path{{}, labels[index_of(to)].latency_ns, width};
  for (VertexId at = to; at != from; at = labels[index_of(at)].before)
    path.hops.push_back(labels[index_of(at)].last);
  std::reverse(path.hops.begin(), path.hops.end());
  return path;
}

}  // namespace tutti
