// hypercube_perf: an all-gather by recursive doubling, made of send_recv: in every round partners
// at twice the distance exchange all that they have. It measures point-to-point messages of growing
// size, as users write them.
#include <cstring>
#include <string>

#include "perf/common/tool.hpp"

namespace tutti::perf {
namespace {

Status exchange(Communicator& ranks, const Call& c) {
  const std::size_t block = c.count * size_of(c.type);
  auto* all = static_cast<std::byte*>(c.output);
  std::byte* own = all + static_cast<std::size_t>(ranks.rank()) * block;
  if (own != c.input && block > 0) std::memcpy(own, c.input, block);
  for (int distance = 1; distance < ranks.size(); distance *= 2) {
    const Rank partner = ranks.rank() ^ distance;
    const auto first = [&](Rank rank) {
      return all + static_cast<std::size_t>(rank & ~(distance - 1)) * block;
    };
    const Status status = ranks.send_recv(first(ranks.rank()), partner, first(partner), partner,
                                          static_cast<std::size_t>(distance) * c.count, c.type);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace

const Tool& hypercube_tool() {
  static const Tool tool{
      .name = "hypercube_perf",
      .collective = Collective::all_gather,
      .shape = blocks_to_all,
      .call = exchange,
      .start = [](Communicator&, const Call&) -> Result<Work> {
        return Status(StatusCode::unsupported,
                      "its rounds wait for each other, so that calls cannot be in flight together; "
                      "leave out -m, or use all_gather_perf");
      },
      .expected = all_gather_tool().expected,
      .busbw_factor = once,
      .algbw_factor = others,
      .serves =
          [](int ranks) {
            if ((ranks & (ranks - 1)) == 0) return Status();
            return Status(StatusCode::unsupported, "a hypercube has 1, 2, 4, 8, ... ranks, not " +
                                                       std::to_string(ranks) +
                                                       "; use all_gather_perf");
          },
  };
  return tool;
}

}  // namespace tutti::perf
