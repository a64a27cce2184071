// part_runs.hpp: where the elements of a rank's part of a weight lie in the whole weight.
#pragma once

#include <algorithm>
#include <cstdint>

#include "training/modules/parameter.hpp"

namespace tutti::training {

// Consecutive elements both of the part and of the whole. Units: elements.
struct PartRun {
  std::int64_t in_part = 0;
  std::int64_t in_whole = 0;
  std::int64_t length = 0;
};

// Calls `f` with each run of elements [begin, end) of the part, in ascending order.
template <typename F>
void for_each_run(const Parameter& parameter, std::int64_t begin, std::int64_t end, F&& f) {
  const Shape& whole = parameter.whole_shape;
  const Part& part = parameter.part;
  std::int64_t inner = 1;  // elements of one step along the extent that is split
  for (std::size_t i = part.dimension + 1; i < whole.rank(); ++i) inner *= whole[i];
  const std::int64_t run = part.length * inner;
  const std::int64_t stride = (whole.rank() == 0 ? 1 : whole[part.dimension]) * inner;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t row = at / run, within = at % run;
    const std::int64_t length = std::min(run - within, end - at);
    f(PartRun{at, row * stride + part.begin * inner + within, length});
    at += length;
  }
}

}  // namespace tutti::training
