// pull_choice.cc: see pull_choice.hpp.
#include "runtime/pull_choice.hpp"

#include <algorithm>
#include <bit>

namespace tutti::runtime {
namespace {

std::size_t table(CopyWay second) { return second == CopyWay::attached ? 1 : 0; }

}  // namespace

std::size_t PullChoice::kind_of(const Signature& call) {
  const auto power = static_cast<std::size_t>(std::bit_width(call.count * size_of(call.type)));
  return std::min(power, kSizes - 1) + kSizes * static_cast<std::size_t>(call.collective);
}

CopyWay PullChoice::propose(const Signature& call, CopyWay second) {
  std::unique_ptr<Kinds>& times = times_[table(second)];
  if (!times) times = std::make_unique<Kinds>();
  return (*times)[kind_of(call)].next() == 1 ? second : CopyWay::stored;
}

// One that went a way that says nothing of these two, as buffers are others now, is passed over.
void PullChoice::took(const Signature& call, CopyWay way, CopyWay second, std::uint64_t ticks) {
  const std::unique_ptr<Kinds>& times = times_[table(second)];
  const bool says_something =
      second != CopyWay::stored && (way == CopyWay::stored || way == second);
  if (!times || call.count == 0 || !says_something) return;
  const auto bytes = static_cast<double>(call.count * size_of(call.type));
  (*times)[kind_of(call)].took(way == second ? 1 : 0, static_cast<double>(ticks) / bytes);
}

}  // namespace tutti::runtime
