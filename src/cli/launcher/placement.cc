// placement.cc: sharing out cores; see placement.hpp.
#include "cli/launcher/placement.hpp"

#include <fmt/format.h>

namespace tutti::cli::launcher {
namespace {

// Rank i of n gets units [i*u/n, (i+1)*u/n): all units are used and neighbours stay together.
std::vector<std::vector<int>> share(std::span<const base::Core> units, std::size_t ranks) {
  std::vector<std::vector<int>> places(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t end = (rank + 1) * units.size() / ranks;
    for (std::size_t unit = rank * units.size() / ranks; unit < end; ++unit)
      places[rank].insert(places[rank].end(), units[unit].begin(), units[unit].end());
  }
  return places;
}

}  // namespace

Result<std::vector<std::vector<int>>> place(std::span<const base::Core> cores, int ranks,
                                            Binding binding) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<base::Core> threads;
  for (const base::Core& core : cores)
    for (const int thread : core) threads.push_back({thread});

  if (binding == Binding::none) return std::vector<std::vector<int>>(count);
  if (count <= cores.size())
    return share(binding == Binding::core ? cores.first(count) : cores, count);
  if (count <= threads.size())
    return share(binding == Binding::core ? std::span(threads).first(count) : std::span(threads),
                 count);
  if (binding == Binding::core)
    return Status(StatusCode::invalid_argument,
                  fmt::format("--bind core needs a core for each rank, but {} ranks have {} "
                              "hardware threads; use --bind auto or none",
                              ranks, threads.size()));
  std::vector<std::vector<int>> places(count);
  for (std::size_t rank = 0; rank < count; ++rank)
    places[rank].assign(threads[rank * threads.size() / count].begin(),
                        threads[rank * threads.size() / count].end());
  return places;
}

}  // namespace tutti::cli::launcher
