// topology_checks.hpp: what must hold for every topology that any source accepted, and that all of
// its users can cope with it. Knows no source.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.hpp"
#include "tutti/topology.hpp"

namespace tutti::fuzz {

// What a reader of a text may hold beside the text itself.
inline std::size_t topology_memory_max(std::size_t text_bytes) {
  return 512 * text_bytes + 256 * 1024;
}

inline void check_json(const Topology& topology) {
  const Result<Topology> from_json = topology_from_json(to_json(topology));
  TUTTI_ASSERT(from_json.ok() && *from_json == topology, "the JSON reads back the same");
}

// False when the text was one of the latest that came. Most inputs differ in bytes that mean
// nothing, and checking the same again finds nothing.
inline bool is_new(const std::string& text) {
  static std::vector<std::size_t> latest(std::size_t{1} << 16);
  const std::size_t hash = std::hash<std::string>()(text);
  return std::exchange(latest[hash % latest.size()], hash) != hash;
}

// JSON takes as long as all the rest, and every topology that any source accepts can come as JSON,
// too, whose own target checks them all: other targets check one of these many.
inline constexpr std::size_t kJsonShare = 16;

inline void check_topology(const Topology& topology) {
  const std::string text = to_text(topology);
  if (!is_new(text)) return;
  const Result<Topology> from_text = topology_from_text(text);
  TUTTI_ASSERT(from_text.ok() && *from_text == topology, "the text reads back the same");
  if (std::hash<std::string>()(text) % kJsonShare == 0) check_json(topology);
  TUTTI_ASSERT(!describe(topology).empty(), "it can be described");
  for (const SeatKind kind : {SeatKind::automatic, SeatKind::gpu, SeatKind::core}) {
    const std::vector<VertexId> placement = default_placement(topology, 5, kind);
    TUTTI_ASSERT(placement.empty() || placement.size() == 5, "all ranks are placed, or none");
    if (placement.empty()) continue;
    const Result<Path> path = find_path(topology, placement.front(), placement.back());
    TUTTI_ASSERT(!path.ok() || path->bandwidth > 0, "a path carries something");
  }
}

}  // namespace tutti::fuzz
