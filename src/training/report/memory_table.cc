// memory_table.cc: see memory_table.hpp.
#include "training/report/memory_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "training/report/text.hpp"

namespace tutti::training {
namespace {

std::string row(std::string_view name, std::span<const std::string> cells) {
  std::string line = fmt::format("{:<14}", name);
  for (const std::string& cell : cells) line += fmt::format("{:>14}", cell);
  return line + "\n";
}

std::string row_of_bytes(std::string_view name, std::span<const std::uint64_t> bytes) {
  std::array<std::string, 3> cells;
  for (std::size_t i = 0; i < bytes.size(); ++i) cells[i] = format_bytes(bytes[i]);
  return row(name, std::span(cells).first(bytes.size()));
}

std::string table_of_one(const MemoryUse& use) {
  const std::array<std::string, 2> head = {"now", "peak"};
  std::string table = row("memory", head);
  for (std::size_t i = 0; i < kMemoryKinds; ++i) {
    const std::array<std::uint64_t, 2> bytes = {use.now[i], use.peak[i]};
    table += row_of_bytes(to_string(static_cast<MemoryKind>(i)), bytes);
  }
  const auto now = std::accumulate(use.now.begin(), use.now.end(), std::uint64_t{0});
  const std::array<std::uint64_t, 2> totals = {now, use.total_peak};
  return table + row_of_bytes("together", totals);
}

// Least, most and sum over the ranks of what `bytes_of` gives.
template <typename F>
std::array<std::uint64_t, 3> over_ranks(std::span<const MemoryUse> ranks, const F& bytes_of) {
  std::array<std::uint64_t, 3> found = {std::numeric_limits<std::uint64_t>::max(), 0, 0};
  for (const MemoryUse& use : ranks) {
    const std::uint64_t bytes = bytes_of(use);
    found = {std::min(found[0], bytes), std::max(found[1], bytes), found[2] + bytes};
  }
  return found;
}

}  // namespace

MemoryUse memory_use(const Arena& arena) {
  MemoryUse use;
  for (std::size_t i = 0; i < kMemoryKinds; ++i) {
    use.now[i] = arena.bytes(static_cast<MemoryKind>(i));
    use.peak[i] = arena.peak(static_cast<MemoryKind>(i));
  }
  use.total_peak = arena.total_peak();
  return use;
}

std::string memory_table(std::span<const MemoryUse> ranks) {
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return table_of_one(ranks[0]);
  const std::array<std::string, 3> head = {"least", "most", "all ranks"};
  std::string table = row("peak memory", head);
  for (std::size_t i = 0; i < kMemoryKinds; ++i)
    table += row_of_bytes(to_string(static_cast<MemoryKind>(i)),
                          over_ranks(ranks, [i](const MemoryUse& use) { return use.peak[i]; }));
  return table + row_of_bytes("together", over_ranks(ranks, [](const MemoryUse& use) {
                                return use.total_peak;
                              }));
}

}  // namespace tutti::training
