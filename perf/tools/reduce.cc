// reduce_perf: every rank's buffer is reduced, and the root alone gets the result.
#include "perf/common/tool.hpp"

namespace tutti::perf {

const Tool& reduce_tool() {
  static const Tool tool{
      .name = "reduce_perf",
      .collective = Collective::reduce,
      .shape = whole,
      .call =
          [](Communicator& ranks, const Call& c) {
            return ranks.reduce(c.input, c.output, c.count, c.type, c.op, c.root);
          },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.reduce_async(c.input, c.output, c.count, c.type, c.op, c.root);
          },
      .expected =
          [](const Shape& shape, Rank rank, int, Rank root) {
            if (rank != root) return std::vector<Piece>{};
            return std::vector<Piece>{{kReduced, 0, shape.output}};
          },
      .busbw_factor = once,
  };
  return tool;
}

}  // namespace tutti::perf
