// Calls that have more than one plan (plan_choice.hpp): which of them is made, what their records
// say, and what is noted for the next ones.
#include <cstddef>

#include "runtime/chosen_plan.hpp"
#include "runtime/executor.hpp"
#include "runtime/flight/ticks.hpp"

namespace tutti::runtime {
namespace {

std::size_t bytes_of(const Signature& call) { return call.count * size_of(call.type); }

}  // namespace

// The plan of the call that begins; nothing is looked for where there is but one.
const collectives::Plan& Executor::choose_plan(const collectives::Plan& usual,
                                               const Signature& call) {
  foretold_plan(usual, call);
  return choose_foretold_plan(usual);
}

// What choose_plan() would give.
const collectives::Plan& Executor::foretold_plan(const collectives::Plan& usual,
                                                 const Signature& call) {
  if (usual.plain == nullptr) return usual;
  return chosen_plan(usual,
                     plan_choice_.foretell(call.collective, bytes_of(call), plans_of(usual)));
}

// choose_plan(), once it was foretold.
const collectives::Plan& Executor::choose_foretold_plan(const collectives::Plan& usual) {
  has_plans_ = usual.plain != nullptr;
  plan_ = {};
  if (!has_plans_) return usual;
  const bool timed = transport_.rank() == 0 && plan_choice_.has_several_foretold();
  plan_ = plan_choice_.begin_foretold(timed ? flight::ticks() : 0);
  return chosen_plan(usual, plan_);
}

// The call as it is made by another plan than its usual one, which its record then says, too.
void Executor::tell_of(const collectives::Plan& plan, const collectives::Plan& usual) {
  call_.signature.direct = plan.settings.direct;
  call_.signature.plan_hash ^= usual.hash ^ plan.hash;
  encode_signature(call_.signature, call_.record);
}

// What the next such calls are chosen by. Without addresses exchanged, only rank 0 asks, whose
// word it is, and only of its own memory.
void Executor::note_plan() {
  if (call_.signature.direct) return plan_choice_.met(own_is_plain_, meets_plain_);
  if (transport_.rank() != 0) return;
  Endpoint& any = *stream(0, 0).endpoint;
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    const std::size_t bytes = buffer_bytes(buffer);
    own_is_plain_ |= bytes > 0 && !any.export_memory(own_memory(buffer), bytes).addressable();
  }
  if (plan_.plain) return plan_choice_.met_by_plain_plan(own_is_plain_);
  if (own_is_plain_) plan_choice_.met(true, true);
}

}  // namespace tutti::runtime
