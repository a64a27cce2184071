// gather_perf: the root gets every rank's block, in the order of ranks.
#include "perf/common/tool.hpp"

namespace tutti::perf {

const Tool& gather_tool() {
  static const Tool tool{
      .name = "gather_perf",
      .collective = Collective::gather,
      .shape = blocks_to_all,
      .call =
          [](Communicator& ranks, const Call& c) {
            return ranks.gather(c.input, c.output, c.count, c.type, c.root);
          },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.gather_async(c.input, c.output, c.count, c.type, c.root);
          },
      .expected =
          [](const Shape& shape, Rank rank, int ranks, Rank root) {
            std::vector<Piece> pieces;
            for (Rank from = 0; rank == root && from < ranks; ++from)
              pieces.push_back({from, 0, shape.count});
            return pieces;
          },
      .busbw_factor = others,
  };
  return tool;
}

}  // namespace tutti::perf
