// memory_table.hpp: what ranks' memory went to, by what it was for, as a table that people read.
//
// Knows arenas' counts only; what the system gave to others is not in it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "training/tensor/arena.hpp"

namespace tutti::training {

// One rank's. A plain value, so that ranks can send it to each other.
struct MemoryUse {
  std::array<std::uint64_t, kMemoryKinds> now{};   // bytes, by MemoryKind
  std::array<std::uint64_t, kMemoryKinds> peak{};  // each kind's own, at whatever time
  std::uint64_t total_peak = 0;                    // of all kinds together
};

MemoryUse memory_use(const Arena& arena);

// Of one rank: a row for each kind with bytes now and at the peak. Of several: the peaks of the
// rank that had the least, of the one that had the most, and of all together.
std::string memory_table(std::span<const MemoryUse> ranks);

}  // namespace tutti::training
