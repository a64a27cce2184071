// broadcast_perf: every rank gets the root's buffer.
#include "perf/common/tool.hpp"

namespace tutti::perf {

const Tool& broadcast_tool() {
  static const Tool tool{
      .name = "broadcast_perf",
      .collective = Collective::broadcast,
      .shape = whole,
      .call =
          [](Communicator& ranks, const Call& c) {
            return ranks.broadcast(c.input, c.output, c.count, c.type, c.root);
          },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.broadcast_async(c.input, c.output, c.count, c.type, c.root);
          },
      .expected =
          [](const Shape& shape, Rank, int, Rank root) {
            return std::vector<Piece>{{root, 0, shape.output}};
          },
      .busbw_factor = once,
  };
  return tool;
}

}  // namespace tutti::perf
