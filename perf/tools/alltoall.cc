// alltoall_perf: rank r gets block r of every rank's buffer, in the order of ranks.
#include "perf/common/tool.hpp"

namespace tutti::perf {

const Tool& alltoall_tool() {
  static const Tool tool{
      .name = "alltoall_perf",
      .collective = Collective::all_to_all,
      .in_place = false,
      .shape =
          [](std::size_t elements, std::size_t element_bytes, int ranks) {
            const std::size_t each = block(elements, element_bytes, ranks);
            const std::size_t all = each * static_cast<std::size_t>(ranks);
            return Shape{each, all, all, 0, 0};
          },
      .call = [](Communicator& ranks,
                 const Call& c) { return ranks.all_to_all(c.input, c.output, c.count, c.type); },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.all_to_all_async(c.input, c.output, c.count, c.type);
          },
      .expected =
          [](const Shape& shape, Rank rank, int ranks, Rank) {
            const std::size_t first = static_cast<std::size_t>(rank) * shape.count;
            std::vector<Piece> pieces;
            for (Rank from = 0; from < ranks; ++from) pieces.push_back({from, first, shape.count});
            return pieces;
          },
      .busbw_factor = others,
  };
  return tool;
}

}  // namespace tutti::perf
