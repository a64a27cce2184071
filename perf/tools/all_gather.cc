// all_gather_perf: every rank gets every rank's block, in the order of ranks.
#include "perf/common/tool.hpp"

namespace tutti::perf {

const Tool& all_gather_tool() {
  static const Tool tool{
      .name = "all_gather_perf",
      .collective = Collective::all_gather,
      .shape = blocks_to_all,
      .call = [](Communicator& ranks,
                 const Call& c) { return ranks.all_gather(c.input, c.output, c.count, c.type); },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.all_gather_async(c.input, c.output, c.count, c.type);
          },
      .expected =
          [](const Shape& shape, Rank, int ranks, Rank) {
            std::vector<Piece> pieces;
            for (Rank from = 0; from < ranks; ++from) pieces.push_back({from, 0, shape.count});
            return pieces;
          },
      .busbw_factor = others,
  };
  return tool;
}

}  // namespace tutti::perf
