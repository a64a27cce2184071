// pull_choice.cc: see pull_choice.hpp.
#include "runtime/pull_choice.hpp"

#include <algorithm>
#include <bit>

namespace tutti::runtime {

std::size_t PullChoice::kind_of(const Signature& call) {
  const auto power = static_cast<std::size_t>(std::bit_width(call.count * size_of(call.type)));
  return std::min(power, kSizes - 1) + kSizes * static_cast<std::size_t>(call.collective);
}

bool PullChoice::propose(const Signature& call) {
  if (!times_) times_ = std::make_unique<std::array<TwoWays, kKinds>>();
  return (*times_)[kind_of(call)].next() == 1;
}

void PullChoice::took(const Signature& call, bool pulled, std::uint64_t ticks) {
  if (!times_ || call.count == 0) return;
  const auto bytes = static_cast<double>(call.count * size_of(call.type));
  (*times_)[kind_of(call)].took(pulled ? 1 : 0, static_cast<double>(ticks) / bytes);
}

}  // namespace tutti::runtime
