// A notice is a code in the low byte and, above it, the culprit's rank plus one.
#include "runtime/notice.hpp"

#include <limits>

#include <fmt/format.h>

namespace tutti::runtime {
namespace {

constexpr int kCodeBits = 8;

std::string cause(const Notice& notice) {
  const std::string whom =
      notice.culprit == Status::kUnknownRank ? "a rank" : fmt::format("rank {}", notice.culprit);
  switch (notice.code) {
    case StatusCode::peer_lost:
      return whom + " is lost";
    case StatusCode::timeout:
      return "waiting for " + whom + " took too long";
    case StatusCode::aborted:
      return whom + " aborted";
    case StatusCode::revoked:
      return whom + " revoked the communicator";
    case StatusCode::mismatch:
      return "ranks made different calls";
    default:
      return whom + " failed";
  }
}

}  // namespace

Status Notice::told_by(Rank from) const {
  const std::string source = from == culprit ? "" : fmt::format(", says rank {}", from);
  return Status(code, cause(*this) + source, culprit);
}

std::uint64_t encode(const Notice& notice) {
  const auto rank = static_cast<std::uint64_t>(static_cast<std::int64_t>(notice.culprit) + 1);
  return rank << kCodeBits | static_cast<std::uint64_t>(notice.code);
}

Notice decode_notice(std::uint64_t word) {
  const std::uint64_t code = word & 0xff;
  const std::uint64_t rank = word >> kCodeBits;
  Notice notice;
  const bool known = code > 0 && code <= static_cast<std::uint64_t>(StatusCode::internal);
  if (known) notice.code = static_cast<StatusCode>(code);
  if (rank > 0 && rank <= static_cast<std::uint64_t>(std::numeric_limits<Rank>::max()))
    notice.culprit = static_cast<Rank>(rank - 1);
  return notice;
}

}  // namespace tutti::runtime
