// scatter_perf: rank r gets block r of the root's buffer.
#include "perf/common/tool.hpp"

namespace tutti::perf {

const Tool& scatter_tool() {
  static const Tool tool{
      .name = "scatter_perf",
      .collective = Collective::scatter,
      .shape = all_to_blocks,
      .call =
          [](Communicator& ranks, const Call& c) {
            return ranks.scatter(c.input, c.output, c.count, c.type, c.root);
          },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.scatter_async(c.input, c.output, c.count, c.type, c.root);
          },
      .expected =
          [](const Shape& shape, Rank rank, int, Rank root) {
            return std::vector<Piece>{
                {root, static_cast<std::size_t>(rank) * shape.count, shape.count}};
          },
      .busbw_factor = others,
  };
  return tool;
}

}  // namespace tutti::perf
