// The purpose is the first byte of every contribution.
#include "runtime/consensus.hpp"

#include <fmt/format.h>

#include "base/try.hpp"

namespace tutti::runtime {
namespace {

const char* name_of(Purpose purpose) { return purpose == Purpose::agree ? "agree" : "shrink"; }

}  // namespace

Result<Decision> agree_to(CommunicatorState& state, Purpose purpose, std::uint64_t flags,
                          const std::string& blob, std::chrono::milliseconds timeout) {
  const char letter = static_cast<char>(purpose);
  auto decision = state.agree(flags, letter + blob, timeout);
  TUTTI_TRY(decision);
  for (std::size_t rank = 0; rank < decision->blobs.size(); ++rank) {
    std::string& theirs = decision->blobs[rank];
    if (decision->lost[rank]) continue;
    if (theirs.empty() || theirs.front() != letter) {
      const Purpose other = purpose == Purpose::agree ? Purpose::shrink : Purpose::agree;
      return Status(StatusCode::mismatch,
                    fmt::format("rank {}: {}(), while rank {} called {}(): after a failure, too, "
                                "all ranks that live make the same calls in the same order",
                                state.rank(), name_of(purpose), rank, name_of(other)),
                    static_cast<int>(rank));
    }
    theirs.erase(0, 1);
  }
  return decision;
}

}  // namespace tutti::runtime
