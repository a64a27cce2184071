// reduce_scatter_perf: every rank's buffer is reduced, and rank r gets block r of the result.
#include "perf/common/tool.hpp"

namespace tutti::perf {

const Tool& reduce_scatter_tool() {
  static const Tool tool{
      .name = "reduce_scatter_perf",
      .collective = Collective::reduce_scatter,
      .shape = all_to_blocks,
      .call =
          [](Communicator& ranks, const Call& c) {
            return ranks.reduce_scatter(c.input, c.output, c.count, c.type, c.op);
          },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.reduce_scatter_async(c.input, c.output, c.count, c.type, c.op);
          },
      .expected =
          [](const Shape& shape, Rank rank, int, Rank) {
            const std::size_t first = static_cast<std::size_t>(rank) * shape.count;
            return std::vector<Piece>{{kReduced, first, shape.count}};
          },
      .busbw_factor = others,
  };
  return tool;
}

}  // namespace tutti::perf
