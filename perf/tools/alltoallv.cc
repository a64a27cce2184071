// alltoallv_perf: as alltoall_perf, but of blocks from next to nothing to the full size: the rank k
// places further on gets (k + 1) n-ths of a block. So every rank sends and receives equally much,
// and no two of its blocks are alike.
#include "perf/common/tool.hpp"

namespace tutti::perf {
namespace {

// What `from` sends `to`, when a full block has `each` elements.
std::size_t sent(std::size_t each, int ranks, Rank from, Rank to) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t further = static_cast<std::size_t>(to - from + ranks) % n;
  return each / n * (further + 1);
}

std::size_t sent_by_each(std::size_t each, int ranks) {
  std::size_t all = 0;
  for (Rank to = 0; to < ranks; ++to) all += sent(each, ranks, 0, to);
  return all;
}

struct Counts {
  std::vector<std::size_t> sends;
  std::vector<std::size_t> receives;
};

Counts counts_of(const Communicator& ranks, std::size_t each) {
  Counts counts;
  for (Rank peer = 0; peer < ranks.size(); ++peer) {
    counts.sends.push_back(sent(each, ranks.size(), ranks.rank(), peer));
    counts.receives.push_back(sent(each, ranks.size(), peer, ranks.rank()));
  }
  return counts;
}

}  // namespace

const Tool& alltoallv_tool() {
  static const Tool tool{
      .name = "alltoallv_perf",
      .collective = Collective::all_to_all,
      .in_place = false,
      .shape =
          [](std::size_t elements, std::size_t element_bytes, int ranks) {
            const std::size_t each = block(elements, element_bytes, ranks);
            const std::size_t all = sent_by_each(each, ranks);
            return Shape{each, all, all, 0, 0};
          },
      .call =
          [](Communicator& ranks, const Call& c) {
            const Counts counts = counts_of(ranks, c.count);
            return ranks.all_to_all_v(c.input, {counts.sends}, c.output, {counts.receives}, c.type);
          },
      .start =
          [](Communicator& ranks, const Call& c) {
            const Counts counts = counts_of(ranks, c.count);
            return ranks.all_to_all_v_async(c.input, {counts.sends}, c.output, {counts.receives},
                                            c.type);
          },
      .expected =
          [](const Shape& shape, Rank rank, int ranks, Rank) {
            std::vector<Piece> pieces;
            for (Rank from = 0; from < ranks; ++from) {
              std::size_t first = 0;
              for (Rank to = 0; to < rank; ++to) first += sent(shape.count, ranks, from, to);
              pieces.push_back({from, first, sent(shape.count, ranks, from, rank)});
            }
            return pieces;
          },
      .busbw_factor = others,
  };
  return tool;
}

}  // namespace tutti::perf
