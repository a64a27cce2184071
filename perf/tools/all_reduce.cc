// all_reduce_perf: every rank's buffer is reduced, and every rank gets the whole result.
#include "perf/common/tool.hpp"

namespace tutti::perf {

const Tool& all_reduce_tool() {
  static const Tool tool{
      .name = "all_reduce_perf",
      .collective = Collective::all_reduce,
      .shape = whole,
      .call =
          [](Communicator& ranks, const Call& c) {
            return ranks.all_reduce(c.input, c.output, c.count, c.type, c.op);
          },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.all_reduce_async(c.input, c.output, c.count, c.type, c.op);
          },
      .expected =
          [](const Shape& shape, Rank, int, Rank) {
            return std::vector<Piece>{{kReduced, 0, shape.output}};
          },
      .busbw_factor = [](int ranks) { return 2 * others(ranks); },
  };
  return tool;
}

}  // namespace tutti::perf
