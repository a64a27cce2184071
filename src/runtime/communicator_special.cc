// Calls of reductions that are more than a ReduceOp: checked and signed when they are made, scaled
// when their turn comes, because an earlier call may still be writing their input.
#include <fmt/format.h>

#include "base/try.hpp"
#include "runtime/communicator_state.hpp"

namespace tutti::runtime {
namespace {

void count_values(std::vector<Block>& blocks, std::size_t width) {
  for (Block& block : blocks) block.count /= width;
}

}  // namespace

Status CommunicatorState::check_special(const Request& r) const {
  const SpecialReduction& special = **r.special;
  std::string reason = refusal(special, r.count, r.type);
  if (reason.empty() && r.blocks != nullptr && special.kind == SpecialKind::custom)
    for (const Block& block : r.blocks->input)
      if (reason.empty()) reason = refusal(special, block.count, r.type);
  if (reason.empty()) return Status();
  return Status(StatusCode::invalid_argument,
                fmt::format("rank {}: {}: {}", rank(), to_string(r.collective), reason));
}

void CommunicatorState::prepare_special(const Reduction::Special& special, WorkState& work) {
  work.special_ = special;
  Signature& s = work.call_.signature;
  s.special = special->kind;
  s.plan_hash ^= special->hash;
  if (special->kind != SpecialKind::custom) return;
  work.call_.custom = special.get();
  s.count /= special->width;
  count_values(work.blocks_.input, special->width);
  count_values(work.blocks_.output, special->width);
}

Status CommunicatorState::start_special(WorkState& work) {
  if (work.special_->kind == SpecialKind::premul_sum) TUTTI_TRY(scale_input(work));
  return executor_->start(work.call_, *work.plan_);
}

// Not into the output, which a call that is refused must leave alone.
Status CommunicatorState::scale_input(WorkState& work) {
  Call& call = work.call_;
  const Signature& s = call.signature;
  const std::size_t element = size_of(s.type);
  const bool scatters = s.collective == Collective::reduce_scatter;
  std::size_t count = s.count;
  if (scatters && call.blocks == nullptr) count *= static_cast<std::size_t>(size());
  if (count == 0) return Status();
  if (scaled_ == nullptr) scaled_ = std::make_unique<ScaledMemory>(*transport_);
  std::byte* memory = scaled_->take(count * element);
  if (memory == nullptr) {
    executor_->fail(
        Status(StatusCode::system_error, fmt::format("rank {}: {}: no memory for {} scaled bytes",
                                                     rank(), to_string(s), count * element)));
    return executor_->status();
  }
  if (call.blocks == nullptr) {
    scale(*work.special_, call.input, memory, count);
    call.input = memory;
    return Status();
  }
  for (Block& block : work.blocks_.input) {
    scale(*work.special_, block.memory, memory, block.count);
    block.memory = memory;
    memory += block.count * element;
  }
  return Status();
}

}  // namespace tutti::runtime
