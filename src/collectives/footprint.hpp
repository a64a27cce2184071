// footprint.hpp: how much memory schedules and programs take, from the capacities of their
// containers: an estimate, for people who wonder where memory goes.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/lowered.hpp"
#include "tutti/schedule.hpp"

namespace tutti::collectives {

// What an allocation costs besides what was asked for, and a node of a map besides its value.
inline constexpr std::size_t kAllocationBytes = 16;
inline constexpr std::size_t kNodeBytes = 48;

// Of the elements themselves, not of what they own.
template <typename T>
std::size_t bytes_of(const std::vector<T>& elements) {
  return elements.capacity() == 0 ? 0 : elements.capacity() * sizeof(T) + kAllocationBytes;
}

std::size_t bytes_of(const Schedule& schedule);
std::size_t bytes_of(const LoweredProgram& program);

}  // namespace tutti::collectives
