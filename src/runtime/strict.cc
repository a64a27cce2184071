// The records are those that travel with every call; see arrival.hpp.
#include "runtime/strict.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::runtime {
namespace {

// Marks the sequence numbers of these calls, so that none is taken for a user's all_gather.
constexpr std::uint32_t kCheckSequence = 1U << 31;

}  // namespace

StrictCheck::StrictCheck(Rank rank, int size)
    : rank_(rank), size_(size), all_(static_cast<std::size_t>(size) * kArrivalBytes) {}

Call StrictCheck::begin(const Signature& mine, const collectives::Plan& plan) {
  shown_ = mine;
  shown_.direct = false;  // records with memory references are longer; plan_hash tells this, too
  encode_signature(shown_, mine_);
  Call call;
  call.signature.sequence = kCheckSequence | ++sequence_;
  call.signature.collective = Collective::all_gather;
  call.signature.type = kType;
  call.signature.count = kCount;
  call.signature.direct = plan.settings.direct;
  call.signature.plan_hash = plan.hash;
  call.sign();
  call.input = mine_.data();
  call.output = all_.data();
  return call;
}

Status StrictCheck::verdict() const {
  for (Rank other = 0; other < size_; ++other) {
    const auto theirs = record(other);
    if (std::equal(theirs.begin(), theirs.end(), mine_.begin())) continue;
    const auto called = decode_arrival(theirs);
    return Status(StatusCode::mismatch,
                  called ? disagreement(rank_, shown_, other, called->signature)
                         : fmt::format("rank {} called something that makes no sense", other));
  }
  return Status();
}

}  // namespace tutti::runtime
