// sendrecv_perf: every rank sends to the next and receives from the one before.
#include "perf/common/tool.hpp"

namespace tutti::perf {
namespace {

Rank next(const Communicator& ranks) { return (ranks.rank() + 1) % ranks.size(); }
Rank before(const Communicator& ranks) { return (ranks.rank() + ranks.size() - 1) % ranks.size(); }

}  // namespace

const Tool& sendrecv_tool() {
  static const Tool tool{
      .name = "sendrecv_perf",
      .collective = Collective::send_recv,
      .in_place = false,
      .shape = whole,
      .call =
          [](Communicator& ranks, const Call& c) {
            return ranks.send_recv(c.input, next(ranks), c.output, before(ranks), c.count, c.type);
          },
      .start =
          [](Communicator& ranks, const Call& c) {
            return ranks.send_recv_async(c.input, next(ranks), c.output, before(ranks), c.count,
                                         c.type);
          },
      .expected =
          [](const Shape& shape, Rank rank, int ranks, Rank) {
            return std::vector<Piece>{{(rank + ranks - 1) % ranks, 0, shape.output}};
          },
      .busbw_factor = once,
  };
  return tool;
}

}  // namespace tutti::perf
