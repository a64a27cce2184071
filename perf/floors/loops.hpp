// loops.hpp: the loops of which floors are made: copy, or add two into one or two places, with each
// kind of store. Knows nothing of ranks.
#pragma once

#include <cstddef>

#include "perf/comparison/work.hpp"

namespace tutti::floors {

using comparison::Type;

enum class Stores {
  plain,
  claimed,   // asks for a cache line some time before it stores there
  paged,     // through the caches as plain ones, eight pages in turn
  streamed,  // past the caches, four pages in turn
};

struct Places {
  std::byte* first = nullptr;
  std::byte* second = nullptr;  // null: only one
};

// to = from. Requires  `streamed` only with places that are multiples of 64.
void copy(Places to, const std::byte* from, std::size_t bytes, Stores stores);

// to = a + b. Also in place.
void add(Type type, Places to, const std::byte* a, const std::byte* b, std::size_t bytes,
         Stores stores);

}  // namespace tutti::floors
