// batches.hpp: what the calls of a batch took, and which batches count where ranks are more than
// cores. There, whatever else runs takes the time slices that ranks give away to each other, and
// times are its own, not the library's. Whether it ran is decided by what a yield costs, never by
// the times.
//
// Knows nothing of ranks or clocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "perf/comparison/stage.hpp"

namespace tutti::comparison {

struct Batch {
  Nanoseconds with_calls;
  Nanoseconds without;      // the owners' work alone
  Nanoseconds yield_price;  // beside it, the dearest
};

inline constexpr std::size_t kEnoughQuiet = 5;  // batches: with so many, the others are left out

// Appends what one of the `calls` of each batch that counts has added, and returns how many batches
// were quiet.
inline std::size_t take_quiet(const std::vector<Batch>& batches, std::size_t calls,
                              Nanoseconds quiet_yield, std::vector<Nanoseconds>& times) {
  const auto is_quiet = [=](const Batch& batch) { return batch.yield_price <= quiet_yield; };
  const auto quiet =
      static_cast<std::size_t>(std::count_if(batches.begin(), batches.end(), is_quiet));
  for (const Batch& batch : batches) {
    if (!is_quiet(batch) && quiet >= kEnoughQuiet) continue;
    const Nanoseconds added = batch.with_calls - batch.without;
    times.push_back(std::max<Nanoseconds>(added / static_cast<Nanoseconds>(calls), 1));
  }
  return quiet;
}

}  // namespace tutti::comparison
