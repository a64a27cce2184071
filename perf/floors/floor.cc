// floor.cc: see floor.hpp.
#include "perf/floors/floor.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::floors {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kInCache = 8192;  // of partial sums, so that they stay next to the core
constexpr std::size_t kStreamedFrom = std::size_t{256} << 10;
constexpr std::size_t kPagedFrom = std::size_t{32} << 10;

void offset_all(Few& few, const Few& bases, std::size_t at) {
  few = Few();
  for (std::byte* base : bases) few.add(base + at);
}

// Sums what fits into the cache.
void sum_block(Type type, const Few& to, const Few& from, std::size_t bytes, Stores stores) {
  alignas(kLine) static std::byte partial[kInCache];
  const std::byte* last = from[from.size() - 1];
  const std::byte* rest = from[0];
  for (std::size_t i = 1; i + 1 < from.size(); ++i) {
    add(type, {partial, nullptr}, rest, from[i], bytes, Stores::plain);
    rest = partial;
  }
  for (std::size_t i = 0; i < to.size(); i += 2) {
    const Places places = {to[i], i + 1 < to.size() ? to[i + 1] : nullptr};
    if (from.size() == 1)
      copy(places, last, bytes, stores);
    else
      add(type, places, rest, last, bytes, stores);
  }
}

}  // namespace

void sum(Type type, const Few& to, const Few& from, std::size_t bytes, Stores stores) {
  if (from.size() <= 2 && to.size() <= 2) return sum_block(type, to, from, bytes, stores);
  Few to_here;
  Few from_here;
  for (std::size_t at = 0; at < bytes; at += kInCache) {
    offset_all(to_here, to, at);
    offset_all(from_here, from, at);
    sum_block(type, to_here, from_here, std::min(kInCache, bytes - at), stores);
  }
}

Part half(std::size_t bytes, int worker) {
  const std::size_t middle = bytes / 2 / kLine * kLine;
  return worker == 0 ? Part{0, middle} : Part{middle, bytes - middle};
}

std::vector<Stores> stores_for(std::size_t block_bytes) {
  if (block_bytes < kLine) return {Stores::plain};
  std::vector<Stores> all{Stores::plain, Stores::claimed};
  if (block_bytes >= kPagedFrom) all.push_back(Stores::paged);
  if (block_bytes >= kStreamedFrom && block_bytes % kLine == 0) all.push_back(Stores::streamed);
  return all;
}

std::string named(const char* way, Stores stores) {
  constexpr const char* kNames[] = {"", ", claimed", ", paged", ", streamed"};
  return std::string(way) + kNames[static_cast<int>(stores)];
}

}  // namespace tutti::floors
