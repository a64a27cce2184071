// fork.hpp: whether this process was forked from the one that made something. What holds locks,
// sockets or a place among the ranks of a job cannot be used by a child as well.
#pragma once

#include <cstdint>

namespace tutti::base {

// Grows in a child with every fork() that led to it. Cost: one load. Threading: any thread.
std::uint32_t fork_generation();

}  // namespace tutti::base
